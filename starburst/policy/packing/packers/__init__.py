"""The packers, one algorithm a file."""
