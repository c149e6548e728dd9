"""Reads Kubernetes manifests as jobs."""
