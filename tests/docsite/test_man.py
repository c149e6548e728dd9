"""The man pages say what the commands say, and groff renders them without a complaint."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from docsite.commands import commands
from docsite.man import pages, write


def rendered(*files: Path) -> subprocess.CompletedProcess[str]:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("there is no groff; install Debian's groff-base")
    command = [groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-P-cbou", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_all_pages_are_rendered_without_a_warning(tmp_path: Path) -> None:
    files = write(tmp_path)
    assert len(files) == len(commands()) + 1
    done = rendered(*files)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_has_the_options_and_words_of_its_command(tmp_path: Path) -> None:
    write(tmp_path)
    text = " ".join(rendered(tmp_path / "starburst-submit.1").stdout.split())
    (submit,) = (command for command in commands() if command.name == "starburst submit")
    assert submit.summary in text
    for option in submit.options:
        assert option.words in text
        assert " ".join(option.help.split()) in text


def test_the_overview_has_the_commands_exit_codes_and_variables() -> None:
    text = pages()["starburst.1"]
    for command in commands():
        assert f".B {command.name}".replace("-", "\\-") in text
    assert ".B STARBURST_HOME" in text
    assert ".B 130" in text
