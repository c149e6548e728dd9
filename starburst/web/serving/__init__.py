"""The process that serves the HTTP API: sockets, connections, its supervisor."""
