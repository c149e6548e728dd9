"""Jobs written as SkyPilot tasks."""
