"""Against a real Kubernetes."""
