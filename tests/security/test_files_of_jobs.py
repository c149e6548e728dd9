"""Files of ConfigMaps and Secrets for jobs without an image on a rented machine: the real agent, as root."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent.task_account import FIRST_ID
from tests.clouds.sky.agent_machine import Machine, spec, text

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as sudo gives it"),
]

NAME = "reads/1/0"
#: Below directories of the machine that jobs cannot write; and where jobs see some of what is there alone.
SECRET, CONFIG = "/etc/starburst-test/login", "/usr/share/starburst-test/app.yaml"
RUN = "/var/run/starburst-test/in"
READS = f"""
cat {SECRET}/token {CONFIG} /tmp/in/app.yaml
stat -c '%a %u' {SECRET}/token; stat -c %a {CONFIG}
(echo x >{CONFIG}) 2>/dev/null && echo wrote
(echo x >{SECRET}/more) 2>/dev/null && echo wrote
(rm -f {SECRET}/token) 2>/dev/null && echo removed
cat {RUN}/app.yaml
[ -s /etc/passwd ] && [ -d /run/lock ] && touch /tmp/x && echo "the rest is there"
until [ -e /tmp/end ]; do sleep 0.05; done
"""
HOSTILE = """
find / -xdev -name token -path '*login*' 2>/dev/null
find {home}/starburst -name token 2>/dev/null
cat {home}/starburst/runs/reads/1/0/volumes/0/token /proc/*/root{secret}/token 2>/dev/null
echo over
"""


@pytest.fixture
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="machine-", dir="/dev/shm"))
    root.chmod(0o755)
    yield Machine(root / "home", NAME)
    shutil.rmtree(root)


def mount(place: str, volume: int, within: str = "") -> dict[str, Any]:
    below = f"{volume}/{within}".rstrip("/")
    own = {"store": None, "told": "a volume", "copied": False, "read_only": True, "files": True}
    return {"path": place, "below": below, "memory_mib": None, **own}


def file(volume: int, path: str, content: str, *, secret: bool) -> dict[str, Any]:
    body = base64.b64encode(content.encode()).decode()
    return {"volume": str(volume), "path": path, "content": body, "mode": None, "secret": secret}


FILES = [file(0, "token", "hf_abc\n", secret=True), file(1, "app.yaml", "lr: 1\n", secret=False)]


def test_a_job_reads_its_files_where_it_mounts_them_and_nobody_else_does(machine: Machine) -> None:
    mounts = [mount(CONFIG, 1, "app.yaml"), mount(SECRET, 0), mount("/tmp/in", 1), mount(RUN, 1)]
    reads = {**spec("sh", "-c", READS), "mounts": mounts, "files": FILES}
    machine.exchange(lease_s=100, specs={NAME: reads}, starts=[NAME])
    machine.until_it_says("the rest is there")
    hostile = spec("sh", "-c", HOSTILE.format(home=machine.home, secret=SECRET))
    machine.exchange(specs={"evil/1/0": hostile}, look={})
    machine.finish("evil/1/0")
    assert (machine.home / "starburst/runs/evil/1/0/log").read_text() == "over\n"
    assert not Path(SECRET).parent.exists()
    assert not Path(CONFIG).parent.exists()
    assert not Path(RUN).parent.exists()
    (machine.dir / "tmp" / "end").touch()
    machine.wait()
    said = text(machine.exchange())
    assert said == f"hf_abc\nlr: 1\nlr: 1\n400 {FIRST_ID}\n644\nlr: 1\nthe rest is there\n"
    assert not (machine.dir / "volumes").exists()


def test_what_is_mounted_below_a_directory_of_the_machines_run_is_there_for_the_job_alone(
    machine: Machine,
) -> None:
    with tempfile.TemporaryDirectory(prefix="starburst-test-", dir="/run") as units:
        os.chmod(units, 0o755)
        Path(units, "theirs").write_text("theirs\n")
        place = f"{units}/deep/app.service"
        script = f"cat {units}/theirs {place}; until [ -e /tmp/end ]; do sleep 0.05; done"
        task = {**spec("sh", "-c", script), "mounts": [mount(place, 1, "app.yaml")], "files": FILES}
        machine.exchange(lease_s=100, specs={NAME: task}, starts=[NAME])
        machine.until_it_says("lr: 1")
        assert os.listdir(units) == ["theirs"]
        (machine.dir / "tmp" / "end").touch()
        machine.wait()
        assert text(machine.exchange()) == "theirs\nlr: 1\n"


@pytest.mark.parametrize("place", ["/", "//proc/1", "/dev"])
def test_a_place_where_nothing_can_be_mounted_is_refused(machine: Machine, place: str) -> None:
    task = {**spec("true"), "mounts": [mount(place, 0)], "files": FILES}
    machine.exchange(lease_s=100, specs={NAME: task}, look={})
    machine.finish()
    said = str(machine.exchange()["exit"])
    assert f"nothing can be mounted at /{place.lstrip('/')}; mend mountPath" in said


def test_where_jobs_are_not_kept_apart_one_with_files_is_refused(machine: Machine) -> None:
    machine.keeps_nobody_apart()
    machine.exchange(
        lease_s=100, specs={NAME: {**spec("true"), "mounts": [mount("/x", 0)], "files": FILES}}, look={}
    )
    machine.finish()
    assert "does not keep jobs apart" in str(machine.exchange()["exit"])
