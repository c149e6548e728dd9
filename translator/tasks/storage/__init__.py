"""Volumes of pods in the cloud: what stands in for them, and where a container sees it."""
