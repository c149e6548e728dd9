"""Parts of the state, each with its own data and independent of `State`: queue, capacity, fleet, accounts."""
