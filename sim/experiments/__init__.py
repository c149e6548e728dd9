"""Experiments: each is run as `python -m sim.experiments.NAME` and writes a page of docs/results."""
