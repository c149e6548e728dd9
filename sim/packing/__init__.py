"""Rented machines that jobs share: what can be rented, what runs on it, and the cluster in front of it."""
