"""The command line: thin commands over the store and the core, with one way to print listings."""
