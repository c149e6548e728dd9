"""The packers, one algorithm per file."""
