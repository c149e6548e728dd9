"""What goes wrong by bad input."""


class UserError(Exception):
    """One clear line (or several problems, a line each): what is wrong, where, and the mend. Exit code 2."""
