"""Names of users, wherever they come in: they stand on terminals, in tables, in topics and in configs."""

from __future__ import annotations

import re

MAX_USER = 64
#: What a user's name may be, for errors.
USER_IS = f"must be letters, digits and . _ @ -, a letter or digit first, {MAX_USER} at most"

_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{MAX_USER - 1}}}")
_OTHER = re.compile(r"[^A-Za-z0-9._@-]")


def is_user(name: str) -> bool:
    """Whether this may be a user's name."""
    return _USER.fullmatch(name) is not None


def as_user(account: str) -> str:
    """A name for an account of the machine, which may have other letters."""
    name = _OTHER.sub("_", account).lstrip("._@-")[:MAX_USER]
    return name or "unnamed"
