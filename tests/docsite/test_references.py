"""The references that are made from the code: whole, and with links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docsite.commands import commands
from docsite.site import CONFIG, PROJECT, _settings, assemble, llms, named
from starburst.app.config import Config
from starburst.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the site."""
    made = tmp_path_factory.mktemp("site") / "pages"
    assemble(made)
    return made


def reference(pages: Path, name: str) -> str:
    return (pages / "reference" / name).read_text(encoding="utf-8")


def test_each_command_and_option_is_in_the_reference(pages: Path) -> None:
    text = reference(pages, "commands.md")
    assert {command.name.split()[1] for command in commands()} == {*COMMANDS}
    for command in commands():
        section = text.split(f"\n## {command.name}\n")[1].split("\n## ")[0]
        for option in command.options:
            assert option.words.replace("|", "\\|") in section
    assert "`FILES… \\| -- COMMAND…`" in text


def test_each_field_of_the_config_is_in_the_reference_below_its_path(pages: Path) -> None:
    text = reference(pages, "config.md")
    for name in Config.model_fields:
        assert f"| `{name}` |" in text
    assert "| `usd_per_hour` | " in text.split("## cloud.offers[] ")[1].split("\n## ")[0]
    assert "## cluster (kind: kubernetes) " in text
    linked, anchors = re.findall(r"\]\(#([\w-]+)\)", text), re.findall(r"\{#([\w-]+)\}", text)
    assert {*linked} <= {*anchors}
    assert len(anchors) == len({*anchors})


def test_each_route_is_in_the_reference(pages: Path) -> None:
    text = reference(pages, "api.md")
    for route in ("GET /api/v1/jobs", "POST /api/v1/jobs", "GET /metrics", "GET /healthz"):
        assert f"\n## {route}\n" in text
    assert "| `job`, required | path | string |" in text


def test_the_metrics_that_there_are_are_those_that_are_explained(pages: Path) -> None:
    explained = (pages / "metrics.md").read_text(encoding="utf-8").split("\n## ")[0]
    rows = " ".join(re.findall(r"^\| (`starburst_.*?) \|", explained, re.MULTILINE))
    there = re.findall(r"^\| `(\w+)`", reference(pages, "metrics.md"), re.MULTILINE)
    assert {*re.findall(r"starburst_\w+", rows)} == {*there}


def test_every_page_is_in_the_navigation_once_and_in_llms_txt(pages: Path) -> None:
    listed = [*named(_settings()["nav"])]
    assert sorted(listed) == sorted(str(path.relative_to(pages)) for path in pages.rglob("*.md"))
    told = re.findall(r"^- \[.+\]\(([^)]+)\)", llms(pages), re.MULTILINE)
    assert told == listed
    assert (pages / "llms.txt").read_text(encoding="utf-8").startswith("# Starburst\n\n> A hybrid-cloud")
    assert CONFIG.name == "mkdocs.yml"


def test_links_to_files_outside_of_the_documents_lead_to_copies(pages: Path) -> None:
    front = (pages / "index.md").read_text(encoding="utf-8")
    assert "](img/schedule.svg)" in front
    assert "](security-policy.md)" in front
    assert "](files/deploy/prometheus/starburst.rules.yaml)" in (pages / "runbook.md").read_text(
        encoding="utf-8"
    )
    assert (pages / "files" / "deploy" / "prometheus" / "starburst.rules.yaml").is_file()
    assert {(pages / page).is_file() for page in PROJECT.values()} == {True}


def test_the_diagram_of_phases_is_a_table(pages: Path) -> None:
    text = (pages / "states.md").read_text(encoding="utf-8")
    assert "| held | queued, blocked, cancelled |" in text
    assert "mermaid" not in text


def test_every_alert_has_a_section_of_the_runbook() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "starburst.rules.yaml").read_text(encoding="utf-8")
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert re.findall(r"- alert: (\w+)", rules) == re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
