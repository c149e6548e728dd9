"""The cluster, the cloud and the users of a simulation, each with a truth of its own."""
