"""Valid names of users; they appear on terminals, in tables, in bus topics and in configs."""

from __future__ import annotations

import re

MAX_USER = 64
#: The rule for a user's name, for error messages.
USER_IS = f"must be letters, digits and . _ @ -, a letter or digit first, {MAX_USER} at most"

_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{MAX_USER - 1}}}")
_OTHER = re.compile(r"[^A-Za-z0-9._@-]")


def is_user(name: str) -> bool:
    """Whether this is a valid user name."""
    return _USER.fullmatch(name) is not None


def as_user(account: str) -> str:
    """A valid user name for an operating-system account, whose name may have other characters."""
    name = _OTHER.sub("_", account).lstrip("._@-")[:MAX_USER]
    return name or "unnamed"
