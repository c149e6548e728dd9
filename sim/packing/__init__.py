"""Shared cloud instances: offers, workloads, and the cluster whose jobs offload to them."""
