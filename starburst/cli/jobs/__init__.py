"""Commands about jobs and what they cost."""
