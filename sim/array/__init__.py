"""The mechanism of the core over columns, compiled by Numba; `sim.array_engine` is the way in."""
