"""Manifests as SkyPilot tasks."""
