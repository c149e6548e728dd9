"""Pure decisions, one idea a file. A policy is a small class; adding one is its file and a registry line."""
