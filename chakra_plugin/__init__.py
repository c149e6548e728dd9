"""Chakra, the Kubernetes scheduler for `schedulerName: chakra`: its decision, without the API around it."""
