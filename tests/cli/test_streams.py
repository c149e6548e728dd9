"""Standard output that is closed, full, or of an encoding without a character: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


def typed(words: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line in a shell, with its redirections."""
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} -m starburst {words}"],
        env={**os.environ, "STARBURST_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_closed_and_full_output_and_an_old_encoding(tmp_path: Path) -> None:
    told = typed("status >&-; echo $? >&2", tmp_path)
    assert told.stderr.splitlines()[-1] == "0"
    told = typed("status -o json >/dev/full", tmp_path)
    assert told.returncode == 1
    assert told.stderr == "error: standard output: No space left on device; write it elsewhere or free room\n"
    told = typed("doctor", tmp_path, PYTHONIOENCODING="latin-1")
    assert "\\u2713 home:" in told.stdout
    assert "Traceback" not in told.stderr
