"""Runs on the cluster: which objects they are, how they stand, and which do not go on."""
