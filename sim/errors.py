"""Errors in a trace or in a simulation's parameters."""


class SimulationError(Exception):
    """One line, or one line per problem, with file, line, field, value and remedy."""
