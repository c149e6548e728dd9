"""Runs on rented machines."""
