"""Commands that need no scheduler: simulation, packing, translation."""
