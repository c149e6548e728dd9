"""Manifests as people have them: the task and the report of each, as they were read and agreed to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.translator.skypilot import goldens
from tests.translator.skypilot.goldens import CASES, REPORT, TASK, VALUES_OF_SECRETS
from translator.fidelity import FidelityLevel
from translator.manifests.hints import PREFIX

NAMES = goldens.names()
#: Looked at through what they belong to.
THROUGH_OTHERS = ("apiVersion", "kind", "status")
WITH_THEIR_VOLUME = ("name", "mountPath", "subPath")


def test_there_are_forty_of_them_at_least():
    assert len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_case_becomes_the_task_that_was_agreed_to(name):
    assert goldens.task_text(goldens.translations(name)) == (CASES / f"{name}{TASK}").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_case_gets_the_report_that_was_agreed_to(name):
    assert goldens.report_text(goldens.translations(name)) == (CASES / f"{name}{REPORT}").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_yaml_says_what_the_task_says(name):
    found = goldens.translations(name)
    read = [task for task in yaml.safe_load_all(goldens.task_text(found)) if task]
    assert read == [each.without_secrets for each in found if each.task]


@pytest.mark.parametrize("name", NAMES)
def test_every_field_that_says_something_has_a_line(name):
    for manifest, found in zip(goldens.manifests(name), goldens.translations(name), strict=True):
        if not found.task or manifest["metadata"].get("uid"):
            continue
        told = {line.field for line in found.report}
        silent = [leaf for leaf in _leaves(manifest, "") if not _is_told(leaf, told)]
        assert not silent


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_secret_is_seen_outside_the_secrets(name):
    for found in goldens.translations(name):
        task = {key: value for key, value in found.task.items() if key != "secrets"}
        seen = f"{task} {found.report} {found!r} {found.without_secrets}"
        assert not [value for value in VALUES_OF_SECRETS if value in seen]


def test_the_verdicts_all_occur():
    verdicts = {line.verdict for name in NAMES for each in goldens.translations(name) for line in each.report}
    assert verdicts == set(FidelityLevel)


def test_only_what_starburst_reads_is_kept_of_its_own_keys():
    for name in NAMES:
        for found in goldens.translations(name):
            assert not [key for key in found.task.get("resources", {}).get("labels", {}) if PREFIX in key]


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if path or key not in THROUGH_OTHERS:
                plain = key.replace("_", "a").isalnum() and not key[0].isdigit()
                step = f".{key}" if plain else f'["{key}"]'
                yield from _leaves(inner, f"{path}{step}".removeprefix("."))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    elif value not in (None, False, "", [], {}):
        yield path


def _is_told(leaf: str, told: set[str]) -> bool:
    """Whether a line is about the leaf, about something it is part of, or the leaf names what is told of."""
    owner, _, last = leaf.rpartition(".")
    if "volumeMounts[" in owner and last in WITH_THEIR_VOLUME:
        return True
    if last in ("name", "prefix") and any(line.startswith(owner) for line in told):
        return True
    return any(leaf == line or leaf.startswith((f"{line}.", f"{line}[")) for line in told if line)
