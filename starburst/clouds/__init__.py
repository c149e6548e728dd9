"""Clouds behind the `Cloud` port."""
