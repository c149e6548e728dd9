"""Reading pods: what they take, and how they ended."""
