"""Kubernetes manifests read as Starburst jobs."""
