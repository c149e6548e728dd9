"""Masks ids of jobs outside a reader's scope in answers.

The decision log names other jobs, for example those that were passed or that share a machine. Each answer
is searched for ids of other queues' jobs before it is sent. The store keeps the id of every job, of
those that ended long ago in its history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from starburst.store.listings import pages
from starburst.store.listings.pages import QueueScope
from starburst.store.store import Store

ANOTHERS = "another queue's job"
#: Keys whose texts Starburst writes; all other texts are the job's own.
TOLD = ("reason", "numbers", "message", "explanation")

_WORD = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


def as_seen(store: Store, queues: QueueScope, answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as a reader of these queues may see them; None is all queues."""
    if queues is None:
        return answer
    words = {word for row in answer for text in _told(row) for word in _WORD.findall(text)}
    hidden = pages.elsewhere(store, words, queues)

    def hide(text: str) -> str:
        return _WORD.sub(lambda word: ANOTHERS if word[0] in hidden else word[0], text)

    return [_changed(row, hide, told=False) for row in answer] if hidden else answer


def _told(value: Any, *, told: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value,) if told else ()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _told(inner, told=told or key in TOLD)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _told(inner, told=told)


def _changed(value: Any, change: Callable[[str], str], *, told: bool) -> Any:
    if isinstance(value, str):
        return change(value) if told else value
    if isinstance(value, dict):
        return {key: _changed(inner, change, told=told or key in TOLD) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_changed(inner, change, told=told) for inner in value]
    return value
