"""Kubernetes as the on-prem cluster."""
