"""Commands about what a job wrote and what runs in it."""
