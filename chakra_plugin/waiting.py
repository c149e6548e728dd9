"""Waiting for news."""

from __future__ import annotations

import asyncio


async def news(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until the event is set, or some wall seconds are over.

    Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that comes together with the event.
    """
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiter}, timeout=timeout_s)
    finally:
        waiter.cancel()
