"""Real Kubernetes and real SkyPilot together."""
