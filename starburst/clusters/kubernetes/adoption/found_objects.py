"""Objects that wait to be taken in, as the watches brought them, so that they are not read once more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starburst.kube import names
from starburst.kube.objects import is_copy
from starburst.kube.resources import Object

#: Characters of objects that are kept; any more are read again when their turn comes.
MOST_KEPT = 32 * 1024 * 1024
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class ObjectText:
    """What adoption needs of one version of an object."""

    #: As JSON, without its status and what servers and kubectl note for themselves.
    body: str
    version: str
    #: Of a Job, seconds; None is none.
    active_deadline_s: int | None
    #: ttlSecondsAfterFinished of a Job; None is none.
    ttl_s: int | None = None
    #: Whether it bears marks that were written on another object.
    copied: bool = False


def text_of(item: Object) -> ObjectText:
    """Of an object as the server sends it."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: value for key, value in annotations.items() if key != _APPLIED}
    kept = {key: value for key, value in item.items() if key != "status"}
    if annotations.get(names.NODES) == "" and kept["spec"].get("parallelism") == 0:  # before 1.21
        kept["spec"] = {**kept["spec"], "parallelism": kept["spec"].get("completions") or 1}
    body = json.dumps({**kept, "metadata": metadata}, ensure_ascii=False, separators=(",", ":"))
    spec = item["spec"] if "template" in item["spec"] else {}
    limit_s, ttl_s = spec.get("activeDeadlineSeconds"), spec.get("ttlSecondsAfterFinished")
    return ObjectText(body, metadata["resourceVersion"], limit_s, ttl_s, is_copy(item["metadata"]))


class FoundObjects:
    """The texts of objects with a queue's label that have no job yet, by uid."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._texts: dict[str, ObjectText] = {}
        self._kept = 0

    def seen(self, item: Object) -> None:
        """An object as a watch or a list brings it."""
        metadata: Mapping[str, Any] = item["metadata"]
        self.forget(metadata["uid"])
        labels = metadata.get("labels") or {}
        taken = names.JOB in labels and not is_copy(item["metadata"])
        if names.QUEUE not in labels or taken or self._kept > self._most_kept:
            return
        text = text_of(item)
        self._texts[metadata["uid"]] = text
        self._kept += len(text.body)

    def get(self, uid: str) -> ObjectText | None:
        """The newest version, if it is kept."""
        return self._texts.get(uid)

    def forget(self, uid: str) -> None:
        """It is gone, taken, or older than what the server has."""
        text = self._texts.pop(uid, None)
        if text is not None:
            self._kept -= len(text.body)
