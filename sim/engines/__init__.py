"""The engines that simulate a trace on one cluster: the core itself, and its event loop over columns."""
