"""The commands of the README work as they are written, on the files that are shipped."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from starburst.cli.main import COMMANDS, app
from tests.cli.conftest import Cli
from tests.readme import ELSEWHERE as SECTIONS_ELSEWHERE
from tests.readme import RUN, blocks

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "configs" / "examples" / "traces"
DOCUMENTS = ("README.md", "docs/cli.md", "docs/migration.md", "docs/traces.md")
#: Sweeps, comparisons and advice take seconds, and history needs a past; tests of their own run these.
ELSEWHERE = ("--sweep", "--compare", "--history")


def typed(document: str) -> list[list[str]]:
    """The words of each `starburst` command in the console blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = re.findall(r"^\$ starburst (.*)$", blocks, re.MULTILINE)
    return [_words(re.split(r" (?:2?>|[|&;])", line)[0]) for line in lines]


def _words(line: str) -> list[str]:
    """Words as a shell splits them; at spaces where a quotation goes over several lines."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def runnable() -> list[list[str]]:
    """The README's simulations, and its packing of tasks."""
    return [
        words
        for words in typed("README.md")
        if words[0] in ("simulate", "pack") and not set(ELSEWHERE) & {*words}
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_options_of_the_documents_exist(document: str) -> None:
    known = typer.main.get_command(app)
    for words in typed(document):
        if words[0] not in COMMANDS:
            assert words[0].startswith("-"), words
            continue
        command = known.commands[words[0]]  # type: ignore[attr-defined]
        if hasattr(command, "commands") and len(words) > 1 and words[1] in command.commands:
            command = command.commands[words[1]]
        options = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        own = words[: words.index("--")] if "--" in words else words  # a command that is submitted follows
        used = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert used <= {*options, "--help", "--install-completion"}, words


def test_the_simulations_of_the_readme_run_on_the_samples(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    assert len(runnable()) == 3
    for words in runnable():
        told = cli(*words)
        assert told.code == 0, (words, told.err)
        assert told.out, words


def test_each_section_with_console_blocks_is_run_somewhere() -> None:
    assert {*blocks()} == {*RUN, *SECTIONS_ELSEWHERE}


def test_the_files_that_the_readme_names_are_shipped() -> None:
    for words in typed("README.md"):
        named = [word for word in words if re.fullmatch(r"[\w./-]+\.(yaml|csv)", word) and "/" in word]
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_generated_workload_is_shipped_too(cli: Cli) -> None:
    assert "1,000 of 1,000 jobs count" in cli("simulate", TRACES / "generated.yaml", "--nodes", 8).out
