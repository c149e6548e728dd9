"""The same core under a virtual clock, with a simulated cluster and cloud."""
