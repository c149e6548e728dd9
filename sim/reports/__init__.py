"""Pictures of simulations, and the advice drawn from a sweep."""
