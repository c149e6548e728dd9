"""Translates jobs to SkyPilot tasks."""
