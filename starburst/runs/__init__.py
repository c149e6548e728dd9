"""How a run reaches a machine: the ports of cluster and cloud, and runs as local process groups."""
