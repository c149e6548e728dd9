"""The command."""

from __future__ import annotations

import socket

import pytest

from chakra_plugin import main


def chakra(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Its exit code."""
    monkeypatch.setattr("sys.argv", ["chakra", *args])
    with pytest.raises(SystemExit) as ended:
        main.run()
    return int(ended.value.code or 0)


def test_help_names_every_option(monkeypatch, capsys):
    assert chakra(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    for option in ("--placement", "--preempt", "--gang-timeout", "--metrics-port", "--lease-namespace"):
        assert option in text


def test_a_missing_kubeconfig_is_one_line(monkeypatch, capsys, tmp_path):
    assert chakra(monkeypatch, "--kubeconfig", str(tmp_path / "none"), "--log-format", "text") == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert "none" in line


def test_a_port_that_is_taken_is_one_line(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert chakra(monkeypatch, "--metrics-port", port, "--log-format", "text") == 2
    assert f"error: --metrics-port {port}: " in capsys.readouterr().err


def test_an_unknown_placement_is_refused(monkeypatch, capsys):
    assert chakra(monkeypatch, "--placement", "best") == 2
    assert "best-fit" in capsys.readouterr().err
