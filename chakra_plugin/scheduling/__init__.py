"""The scheduling of Chakra as a functional core: events and results in, decisions out; no I/O, no clock."""
