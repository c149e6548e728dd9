"""The doctor at the laboratory: all is well; and `up`, which begins nothing without an API server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.sky

#: Wall seconds in which a refusal has come, whatever else this machine does.
SOON_S = 60.0


def starburst(home: Path, verb: str, config: str) -> tuple[int, list[str], list[str]]:
    """The exit code of a command in a process of its own, and its lines of output and of errors."""
    file = home / "starburst.yaml"
    file.write_text(f"cloud: {{kind: skypilot, instance_types: [p3.2xlarge], {config}}}")
    done = subprocess.run(
        [Path(sys.executable).with_name("starburst"), verb, "--config", file],
        env={**os.environ, "STARBURST_HOME": str(home / "home")},
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * SOON_S,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def test_the_laboratory_is_found_to_be_in_good_order(tmp_path: Path) -> None:
    code, lines, errors = starburst(tmp_path, "doctor", "regions: [us-east-1]")
    assert code == 0, lines
    # The laboratory's AWS may answer 500, with a page, to questions about quotas.
    assert not [line for line in errors if "quotas-unknown" not in line or "<" in line]
    assert {line[0] for line in lines} == {"✓"}
    names = [line[2:].partition(": ")[0] for line in lines]
    assert names[-6:] == ["skypilot", "api-server", "credentials", "machines", "offers", "programs"]
    assert "✓ credentials: aws: SkyPilot may use compute and storage" in lines
    (offers,) = [line for line in lines if line.startswith("✓ offers: ")]
    assert offers.endswith("the cheapest GPU $3.06 an hour (aws/us-east-1/p3.2xlarge)")


def test_up_tells_of_a_dead_server_and_a_wrong_region_at_once_and_soon(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    since = time.monotonic()
    code, _, errors = starburst(tmp_path, "up", f"api_server: '{nobody}', regions: [us-easst-1]")
    assert time.monotonic() - since < SOON_S
    assert (code, errors) == (
        2,
        [
            f"error: api-server: {nobody} does not answer (Connection refused); "
            "start it (sky api start), or correct cloud.api_server",
            "error: offers: cloud.regions: no offer has us-easst-1; did you mean us-east-1?",
        ],
    )
    assert not (tmp_path / "home" / "starburst.db").exists()
