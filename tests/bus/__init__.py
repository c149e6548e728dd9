"""Events out, hints in."""
