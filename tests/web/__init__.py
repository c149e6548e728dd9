"""The HTTP API, the dashboard, the metrics."""
