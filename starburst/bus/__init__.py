"""Events out and hints in: the decision log for whoever listens, and what others would like us to know."""
