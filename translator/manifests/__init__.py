"""Kubernetes manifests read as jobs."""
