"""The cloud behind SkyPilot: machines are its clusters of one node, which several jobs share."""
