"""What is wrong with a trace or a simulation's parameters."""


class SimulationError(Exception):
    """One clear line (or several problems, a line each) with file, line, field, value and mend."""
