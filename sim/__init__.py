"""Simulator: the scheduler's core under a virtual clock, with a simulated cluster and cloud."""
