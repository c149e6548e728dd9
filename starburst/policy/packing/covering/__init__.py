"""The covering program: instances of least cost for given tasks, with a lower bound."""
