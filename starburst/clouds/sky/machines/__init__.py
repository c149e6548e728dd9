"""Rented machines: launched, kept alive, watched, ended."""
