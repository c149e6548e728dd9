"""Commands about the scheduler itself."""
