"""Starburst over HTTP: the API, the dashboard, the metrics."""
