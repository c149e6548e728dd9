"""The names of an operator's replicated Jobs and tasks: labels of Kubernetes, each given once."""

from __future__ import annotations

from collections.abc import Iterable

from translator.field import Field
from translator.object_names import DNS_LABEL


def check_names(parts: Iterable[Field]) -> None:
    """Refuse what is no label of Kubernetes in the `name` of a part, and a name that an earlier part has."""
    seen: dict[str, str] = {}
    for part in parts:
        name = part.at("name")
        text = name.value
        if not text or not isinstance(text, str):
            continue  # missing, or refused where it is read
        if not DNS_LABEL.fullmatch(text):
            name.refuse("names have lower-case letters, digits and dashes, 63 at most; rename it")
        elif text in seen:
            name.refuse(f"is the name of {seen[text]} too; give each a name of its own")
        else:
            seen[text] = part.path
