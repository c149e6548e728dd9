"""The core compiled by mypyc, in a copy that only simulations use: the scheduler runs the sources."""
