"""Backends of the commands: the store of the home on this machine, or an API server."""
