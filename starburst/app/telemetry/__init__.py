"""Spans of OpenTelemetry."""
