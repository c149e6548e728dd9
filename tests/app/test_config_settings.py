"""The settings of the core that the config sets, and those that it does not."""

from __future__ import annotations

from dataclasses import fields

import pytest

from starburst.app.config import Config
from starburst.app.config.policy import OF_INTAKE, SETTINGS, PolicyConfig
from starburst.core.model.settings import Settings
from starburst.policy.waiting import HOUR_S

#: Set by other sections of the config.
ELSEWHERE = {"caps", "max_rate", "max_failing", "queues"}
#: Not configurable: the unit of the simulator's clock, and constants of the core.
FIXED = {"unit_s", "max_wait_s", "max_losses"}


def test_every_setting_of_the_core_is_a_field_of_the_config_or_fixed() -> None:
    mapped = {SETTINGS.get(name, name) for name in PolicyConfig.model_fields.keys() - OF_INTAKE}
    assert mapped | ELSEWHERE | FIXED == {field.name for field in fields(Settings)}
    assert not mapped & (ELSEWHERE | FIXED)
    assert set(SETTINGS) <= set(PolicyConfig.model_fields)


def test_the_defaults_are_those_of_the_core() -> None:
    settings = Config().settings()
    differ = {f.name for f in fields(Settings) if getattr(settings, f.name) != getattr(Settings(), f.name)}
    assert differ == set()


@pytest.mark.parametrize("name", sorted(PolicyConfig.model_fields.keys() - OF_INTAKE))
def test_a_value_of_the_config_reaches_its_setting(name: str) -> None:
    odd = {bool: True, int: 7, float: 7.5}
    field = PolicyConfig.model_fields[name]
    value = next((v for kind, v in odd.items() if type(field.default) is kind), field.default)
    settings = PolicyConfig.model_construct(**{name: value}).settings()
    assert getattr(settings, SETTINGS.get(name, name)) == value


def test_factors_in_hours_become_seconds() -> None:
    assert PolicyConfig(waiting="constant", factor=2.0).settings().factor == 2 * HOUR_S
    assert PolicyConfig(waiting="compute", factor=2.0).settings().factor == 2.0
