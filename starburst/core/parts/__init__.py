"""Parts of the state that own their data and know nothing of the whole: queue, capacity, fleet, accounts."""
