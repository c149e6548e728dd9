"""Views of the state: explanations, snapshots, checks."""
