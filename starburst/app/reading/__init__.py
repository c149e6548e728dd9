"""Manifests of others, read by worker processes within bounds of memory and time."""
