"""The command line: thin commands over the store and the core, one way to print listings, no tracebacks."""
