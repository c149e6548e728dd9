"""Names of container images, by the grammar of the distribution project (distribution/reference)."""

from __future__ import annotations

import re

#: Longest accepted name with tag and digest; registries accept 255 characters for a repository's name.
LONGEST = 512

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII)

#: Error text for an invalid name.
MEND = "is no name of an image: write it as registry/repository:tag, in lower case up to the tag"


def is_image(text: str) -> bool:
    """Whether a text is a valid image name; one with a leading dash would be an option of the engine."""
    return len(text) <= LONGEST and _REFERENCE.fullmatch(text) is not None
