"""Access to Kubernetes: calls, watches, rights, events, and objects read into plain values."""
