"""Starburst: a hybrid-cloud burst scheduler for GPU clusters."""

__version__ = "0.1.0"
