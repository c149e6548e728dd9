"""Nothing that a user, a job or a machine wrote steers the terminal or the spreadsheet of who reads it."""

from __future__ import annotations

import csv
import io
import json

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st

from starburst.cli.jobs import cost, status
from starburst.cli.output import Format, dump, say
from starburst.domain.user import as_user, is_user
from starburst.log import set_up_log
from starburst.store.listings.costs import CostRow, CostSplit
from starburst.store.listings.row_types import JobRow
from starburst.visible import LogFilter, visible

EVIL = "a\x1b[31mred\r\x1b]0;title\x07\x9b2J\u202egnp.exe\x7f"
ROW = JobRow("train-x1", "train", EVIL, "papers", "1 GPU", "failed", 0.0, message=EVIL, runs_on=EVIL)


def harmless(text: str) -> bool:
    return all(sign.isprintable() or sign == "\n" for sign in text)


@pytest.mark.parametrize("how", list(Format))
def test_a_listing_shows_what_would_steer_a_terminal(how: Format, capsys: pytest.CaptureFixture[str]) -> None:
    status.listing(0.0).print([ROW], how)
    cost.listing(CostSplit.USER).print([CostRow(EVIL, 1, 0, None)], how)
    shown = capsys.readouterr().out
    assert harmless(shown)
    if how is Format.WIDE:
        assert "a\\x1b[31mred\\r\\x1b]0;title\\x07\\x9b2J\\u202egnp.exe\\x7f" in shown


def test_a_table_on_a_terminal_does_too() -> None:
    table = status.listing(0.0).table([ROW], Format.WIDE)
    cells = [str(cell) for column in table.columns for cell in column.cells]
    assert all(map(harmless, cells))


def test_data_is_the_same_when_it_is_read_again() -> None:
    data = [{"user": EVIL, "café": "ü"}]
    for how, parse in ((Format.JSON, json.loads), (Format.YAML, yaml.safe_load)):
        text = dump(data, how)
        assert harmless(text)
        assert parse(text) == data
    assert "café" in dump([{"café": "ü"}], Format.JSON)


def test_lines_and_the_log_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    set_up_log(text=True)
    structlog.get_logger().warning("not-adopted", why=EVIL)
    set_up_log(text=False)
    structlog.get_logger().warning("not-adopted", why=EVIL)
    told = capsys.readouterr()
    assert harmless(told.out)
    assert harmless(told.err)
    assert "\\x1b[31mred" in told.err


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(1)", "\t=1", "\r=1"])
def test_a_cell_of_a_table_is_no_formula(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cost._print(cost.listing(CostSplit.USER), [CostRow(name, 1_000_000, 0, None)], cost.CostFormat.CSV)
    heading, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert heading[0] == "user"
    assert row[0] == "'" + visible(name)
    assert row[1] == "1.0"


@given(st.text(alphabet=st.sampled_from("ab\x1b[]0;31mHJ\n\r\t\b\x07\x9b"), max_size=60), st.data())
def test_of_a_log_only_lines_bars_and_colours_reach_a_terminal_however_it_comes(
    text: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text)))
    cut, whole = LogFilter(), LogFilter()
    pieces = cut(text[:at]) + cut(text[at:]) + cut.rest()
    assert pieces == whole(text) + whole.rest()
    rest = "".join(part for n, part in enumerate(_split(pieces)) if n % 2 == 0)
    assert all(sign.isprintable() or sign in "\n\r\t\b" for sign in rest)


def _split(text: str) -> list[str]:
    import re

    return re.split(r"(\x1b\[[0-9;:]*m)", text)


@given(st.text(max_size=100))
def test_every_account_of_the_machine_has_a_users_name(account: str) -> None:
    assert is_user(as_user(account))
