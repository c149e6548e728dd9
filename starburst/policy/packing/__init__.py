"""Which instances to rent for which tasks."""
