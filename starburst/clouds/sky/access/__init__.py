"""How SkyPilot, the machines it rents and their clouds are reached."""
