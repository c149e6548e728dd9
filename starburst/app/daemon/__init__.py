"""The running scheduler: the controller, and the background tasks around it."""
