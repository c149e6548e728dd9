"""Readers of traces as their authors published them."""
