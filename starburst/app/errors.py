"""Errors of user input."""


class UserError(Exception):
    """Invalid input: a line per problem with the place, the problem and the remedy. Exit code 2."""
