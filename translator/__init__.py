"""Translates Kubernetes manifests to Starburst jobs and SkyPilot tasks."""
