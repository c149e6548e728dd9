"""The slotted model: jobs of random size on servers with one resource, driven by a queue discipline."""
