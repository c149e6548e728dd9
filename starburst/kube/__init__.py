"""What everything that talks to Kubernetes shares: calls, watches, and objects read into plain values."""
