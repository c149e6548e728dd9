"""The covering program: the cheapest instances for given tasks, with a lower bound."""
