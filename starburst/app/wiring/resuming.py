"""The scheduler as the store has it, after a restart: of a million queued jobs within seconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.views.restoring import restore
from starburst.store.store import Store


def resume(settings: Settings, store: Store) -> Scheduler:
    """The scheduler that the last step left."""
    with _uncollected():
        return restore(settings, store.snapshot())


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector off: all that is made lasts, and it would be looked at again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
