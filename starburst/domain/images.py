"""Names of container images, by the grammar of the distribution project (distribution/reference)."""

from __future__ import annotations

import re

#: Longest name with tag and digest that is taken; registries take 255 characters of a repository's name.
LONGEST = 512

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII)

#: What is to be done about one that is none.
MEND = "is no name of an image: write it as registry/repository:tag, in lower case up to the tag"


def is_image(text: str) -> bool:
    """Whether a text names an image; what begins with a dash, say, would be an option of the engine."""
    return len(text) <= LONGEST and _REFERENCE.fullmatch(text) is not None
