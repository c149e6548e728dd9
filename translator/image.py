"""Names of container images, by the grammar of OCI's distribution: nothing else reaches a command line."""

from __future__ import annotations

import re

from translator.field import Field

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
#: https://github.com/distribution/reference, regexp.go
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,128})?"
)
MAX_IMAGE = 512


def image_of(field: Field) -> str | None:
    """The image that a container names."""
    name = field.text()
    if name and (len(name) > MAX_IMAGE or not _IMAGE.fullmatch(name)):
        field.refuse("is no name of an image; write one such as registry.example.org/team/train:1.2")
    return name
