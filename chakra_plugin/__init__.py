"""Chakra: the Kubernetes scheduler of pods with `schedulerName: chakra`."""
