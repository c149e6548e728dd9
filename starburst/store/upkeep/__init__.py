"""What keeps a store in shape: copies of it, moves to another database, and a bound on its size."""
