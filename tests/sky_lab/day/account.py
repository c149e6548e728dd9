"""The account that a day rents on: it has so many machines and no more, as a quota of AWS has it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.sky_lab.ec2 import REGIONS

#: Seconds between looks at what is rented.
LOOK_S = 0.2
#: Seconds that the cloud may take to answer one of them.
ANSWER_S = 20.0
#: States in which an instance costs no more and gives its room back.
OVER = frozenset({"shutting-down", "terminated"})


@dataclass
class Account:
    """Sells all types out while it has so many machines of them, whosever they are, and while a fault does.

    It looks past the faults of EC2, by the laboratory's own listing; in a thread, since a day waits for much.
    """

    most: int
    types: tuple[str, ...]
    #: A fault sells everything out.
    sold_out: bool = False
    _closed: bool = False
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more; everything can be rented again."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._switch(closed=False)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with suppress(URLError, TimeoutError, ConnectionError):
                self.look()

    def look(self) -> None:
        """Sell out, or not, by what there is."""
        there = count(self._ask("instances").splitlines(), self.types)
        closed = self.sold_out or there >= self.most
        if closed != self._closed:
            self._switch(closed=closed)

    def _switch(self, *, closed: bool) -> None:
        for kind in self.types:
            self._ask("capacity", region=REGIONS[0], type=kind, on=str(int(not closed)))
        self._closed = closed

    def _ask(self, what: str, **asked: str) -> str:
        with urlopen(
            f"{os.environ['AWS_ENDPOINT_URL']}/skylab/{what}?{urlencode(asked)}", timeout=ANSWER_S
        ) as said:
            return str(said.read().decode())


def count(listing: Iterable[str], types: Iterable[str]) -> int:
    """Machines of these types that have room in the account, by the laboratory's listing of instances."""
    rows = [line.split("\t") for line in listing]
    return sum(row[3] in types and row[5] not in OVER for row in rows)
