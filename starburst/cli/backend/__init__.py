"""Where a command gets its answers: the home on this machine, or an API server."""
