"""Where the parts of a Starburst are put together."""
