"""SkyPilot tasks (YAML of 0.14), read as jobs."""
