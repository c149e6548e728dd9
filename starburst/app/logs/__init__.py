"""What jobs wrote."""
