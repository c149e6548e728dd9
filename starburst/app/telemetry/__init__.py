"""OpenTelemetry spans of steps and decisions."""
