"""The scheduler as a state machine without I/O: events in, actions out, every decision logged."""
