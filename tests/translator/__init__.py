"""Tests of reading Kubernetes manifests."""
