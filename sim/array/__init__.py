"""The core's event loop over columns, compiled by Numba; the entry point is `sim.engines.array_engine`."""
