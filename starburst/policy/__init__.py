"""Pure decision functions and small classes. A new policy needs one file and one line in a registry."""
