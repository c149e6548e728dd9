"""Orders of the queue, and disciplines of proven throughput."""
