"""The newest result of a slow computation that runs in a thread beside the requests that show it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from starburst.store.errors import StoreError

log = structlog.get_logger()

K = TypeVar("K")
V = TypeVar("V")


class BackgroundCache(Generic[K, V]):
    """Keeps one computed value and the key that it was computed for. Thread-safe."""

    def __init__(self, name: str, pause_s: Callable[[float], float]) -> None:
        """`pause_s`: CPU seconds of a computation to wall seconds until the next one may start."""
        self._name = name
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._busy = False
        self._next_at = 0.0
        self._latest: tuple[K, V] | None = None

    def latest(self) -> tuple[K, V] | None:
        """Key and value of the last finished computation; None before the first."""
        with self._lock:
            return self._latest

    def refresh(self, key: K, compute: Callable[[], V], wait_s: float = 0.0) -> None:
        """Start a computation for `key`, and wait for it at most `wait_s` wall seconds.

        Nothing starts while another computation runs, within its pause, or if the value of `key` is known.
        """
        with self._lock:
            known = self._latest is not None and self._latest[0] == key
            if self._busy or known or time.monotonic() < self._next_at:
                return
            self._busy = True
        thread = threading.Thread(target=self._run, args=(key, compute), name=self._name, daemon=True)
        thread.start()
        thread.join(wait_s)

    def _run(self, key: K, compute: Callable[[], V]) -> None:
        began = time.thread_time()
        try:
            value = compute()
            with self._lock:
                self._latest = key, value
        except (
            SQLAlchemyError,
            StoreError,
        ) as error:  # the store is closed or busy
            log.debug("background-computation-failed", computation=self._name, error=str(error))
        finally:
            with self._lock:
                self._busy = False
                self._next_at = time.monotonic() + self._pause_s(time.thread_time() - began)
