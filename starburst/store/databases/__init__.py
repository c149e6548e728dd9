"""What differs between the databases: how each is opened, locked, watched, and how it fails."""
