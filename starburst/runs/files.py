"""Facts that are created once: files and directories that appear as a whole, by a link or a rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from starburst.runs.supervisor.files import sync_directory, write_json


def write_json_once(path: Path, data: Any) -> bool:
    """Create a file with `data` as JSON; False if it exists, and then it is unchanged."""
    staging = path.with_name(f"{path.name}.{os.getpid()}")
    write_json(staging, data)
    try:
        os.link(staging, path)
    except FileExistsError:
        return False
    finally:
        staging.unlink()
    sync_directory(path.parent)
    return True


def claim_directory(path: Path, files: Mapping[str, Any]) -> bool:
    """Create a directory with these JSON files by one rename; False if it exists and is not empty."""
    staging = path.with_name(f".{path.name}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True, mode=0o700)
    for name, data in files.items():
        target = staging / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(target, data)
    try:
        staging.rename(path)
    except OSError:
        if not path.exists():
            raise
        shutil.rmtree(staging)
        return False
    sync_directory(path.parent)
    sync_directory(path.parent.parent)  # it may be new as well
    return True


@lru_cache(10_000)
def directory_name(id_: str) -> str:
    """The file name for an id. It never begins with a dot, as names of staging directories do."""
    return quote(id_, safe="").replace(".", "%2E")


def id_of(directory: Path) -> str:
    """The id that a directory is named after."""
    return unquote(directory.name)
