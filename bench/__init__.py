"""Benchmarks: run by hand or by CI to see that they still run; they judge nothing by time."""
