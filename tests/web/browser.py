"""A real Chromium without a window: of this machine or, for root, of Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tests.kube.lab import skip

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@cache
def chromium() -> str:
    """Where it is."""
    installed = shutil.which("chromium")
    if installed:
        return installed
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        skip("there is no chromium; install Debian's package")
    try:
        install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        subprocess.run(["apt-get", "update"], capture_output=True, timeout=120, check=True)
        subprocess.run(install, capture_output=True, timeout=600, check=True)
    except subprocess.SubprocessError as error:
        skip(f"Debian's chromium cannot be installed: {error}")
    return shutil.which("chromium") or skip("Debian's chromium is not where it should be")


@contextmanager
def browser() -> Iterator[Browser]:
    """One that begins with an empty profile."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=15_000)  # machines are shared; what is looked for is mostly there at once
    program = chromium()
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=program, args=list(QUIET))
        yield made
        made.close()
