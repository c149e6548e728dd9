"""Experiments: each is run as `python -m sim.experiments.FOLDER.NAME` and writes a page of docs/results."""
