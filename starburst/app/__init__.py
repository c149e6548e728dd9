"""The imperative shell: config, the controller that drives the core, and the tasks around it."""
