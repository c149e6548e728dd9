"""Standard output that is closed, full, or of an encoding without a character: no traceback."""

from __future__ import annotations

import io
import sys

import pytest

from starburst.cli.streams import safe_output


def test_without_a_standard_output_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none if the caller closed it (`starburst status >&-`)."""
    monkeypatch.setattr(sys, "stdout", None)
    with safe_output():
        print("into nothing")
        sys.stdout.close()
        sys.stdout = io.StringIO()


def test_a_full_disk_below_standard_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended, safe_output():
            print("x" * 100_000)
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told == "error: standard output: No space left on device; write it elsewhere or free room\n"


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with safe_output():
        print("✓ é")
    assert written.getvalue() == b"\\u2713 \xe9\n"


def test_other_faults_are_not_hidden() -> None:
    with pytest.raises(FileNotFoundError), safe_output():
        open("/proc/nowhere")  # noqa: SIM115
