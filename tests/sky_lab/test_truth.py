"""SkyPilot forgets machines that run, and a person's cluster looks like ours: some four minutes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from starburst.app.daemon.reaper import ReapRules
from starburst.clouds.sky.access.ports import LaunchSpec
from starburst.clouds.sky.machines.naming import CONTROLLER, Naming
from starburst.core.model.events import InstanceGone, InstanceReady, RunEnded
from tests.clouds.sky.life import reaper_of
from tests.sky_lab.ec2 import billed, ec2
from tests.sky_lab.lab import Life, job, kill_server, lab

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

#: Ends when it is told to, having counted its starts.
WORK = "echo began; while [ ! -e {end} ]; do sleep 0.2; done; echo over"


def test_what_skypilot_forgets_goes_on_and_ends_and_what_a_person_made_is_let_be(tmp_path: Path) -> None:
    controller = f"lab-{uuid4().hex}"
    try:
        asyncio.run(story(tmp_path, controller))
    finally:  # of a story that broke off, and what SkyPilot no longer knows
        if left := named(dict(Naming("", controller).intent("", None))[CONTROLLER]):
            ec2().terminate_instances(InstanceIds=left)


def named(part: str) -> list[str]:
    """Instances that cost money and have this in their names."""
    return [id_ for id_, tags in billed().items() if part in tags.get("Name", "")]


async def story(home: Path, controller: str) -> None:
    async with Life(home, controller) as life:
        naming = life.cloud._context.naming
        debug = naming.cluster("debug")
        by_hand = asyncio.create_task(launch_by_hand(life, debug))
        offer = await life.offer("aws/us-east-1/c7i.xlarge")
        for id_ in ("i-1", "i-2"):
            await life.cloud.launch(id_, offer)
        for id_ in ("i-1", "i-2"):
            await life.heard(InstanceReady, lambda event, id_=id_: event.instance_id == id_)
        await by_hand
        ids = instances(life)
        for name, id_ in (("a", "i-1"), ("b", "i-2")):
            await life.cloud.start(job(name, id_, WORK.format(end=f"/tmp/end-{name}")))
            await life.written(name, "began")
        await without_tags(life, ids["i-1"])
        await let_be(life, debug)
        await without_state(life)
        for name, id_ in (("a", "i-1"), ("b", "i-2")):
            end_job(ids[id_], name)
            ended = await life.heard(RunEnded, lambda event, name=name: event.job_id == name)
            assert ended.exit_code == 0
            assert await life.written(name, "over") == "began\nover\n"
        assert not [event for event in life.events if isinstance(event, InstanceGone)]
        await ended_by_id(life, ids)
    assert len(named(debug)) == 1, "it was nobody's to end"


async def launch_by_hand(life: Life, cluster: str) -> None:
    """As `sky launch -c NAME`: no label of ours."""
    spec = LaunchSpec(cluster, "aws/us-east-1", "c7i.large", False, (), 60)
    await life.api.wait(await life.api.launch(spec))


def instances(life: Life) -> dict[str, str]:
    """EC2's ids by ours."""
    machines = life.cloud.machines
    entries = {id_: machine.entry for id_, machine in machines.items()}
    found = {id_: entry.at.instance for id_, entry in entries.items() if entry.at is not None}
    assert found.keys() == entries.keys(), "the cloud named both when they came up"
    assert all(entry.armed for entry in entries.values())
    return found


def described(instance: str) -> dict[str, Any]:
    (group,) = ec2().describe_instances(InstanceIds=[instance])["Reservations"]
    found: dict[str, Any] = group["Instances"][0]
    return found


async def forgotten(life: Life, *ids: str) -> None:
    end = time.monotonic() + 120
    while not all(life.cloud.machines[id_].entry.forgotten for id_ in ids):
        assert time.monotonic() < end, "nobody noticed"
        await asyncio.sleep(0.5)


async def without_tags(life: Life, instance: str) -> None:
    """Somebody removes everything that is written on an instance, and SkyPilot takes it for gone."""
    tags = [{"Key": tag["Key"]} for tag in described(instance)["Tags"]]
    ec2().delete_tags(Resources=[instance], Tags=tags)
    cluster = life.cloud.machines["i-1"].cluster
    end = time.monotonic() + 60
    while await life.api.clusters(refresh=[cluster]):
        assert time.monotonic() < end, "SkyPilot finds it without tags"
        await asyncio.sleep(2)
    await forgotten(life, "i-1")


async def let_be(life: Life, debug: str) -> None:
    """The reaper ends at any age what nobody claims, and this is not even seen by it."""
    claimed = {"i-1", "i-2"}
    rules = ReapRules(life.controller, after_s=0.0, others=True)
    reaper = reaper_of(life.cloud, *claimed, rules=rules, now=time.time)
    assert {machine.id for machine, _ in await reaper.look()} == claimed
    await reaper.round()
    assert debug in {status.name for status in await life.api.clusters()}


async def without_state(life: Life) -> None:
    """SkyPilot's API server dies, and its database is lost."""
    kill_server()
    for path in Path(os.environ["HOME"], ".sky").glob("state.db*"):
        path.unlink()
    lab("up", seconds=300)
    await forgotten(life, "i-1", "i-2")


def end_job(instance: str, name: str) -> None:
    """Write the file that a job waits for into its /tmp, from within its machine."""
    rows = [line.split("\t") for line in lab("vms").splitlines()]
    (pid,) = [row[8] for row in rows if row[0] == instance]
    write = f"for tmp in /home/ubuntu/starburst/runs/*/*/*/tmp; do touch $tmp/end-{name}; done"
    subprocess.run(["nsenter", "-t", pid, "-m", "-r", "sh", "-c", write], check=True)


async def ended_by_id(life: Life, ids: dict[str, str]) -> None:
    """Given back without SkyPilot, at the cloud's own bill."""
    for id_, instance in ids.items():
        await life.cloud.terminate(id_)
        gone = await life.heard(InstanceGone, lambda event, id_=id_: event.instance_id == id_)
        found = described(instance)
        assert found["State"]["Name"] == "terminated"
        assert gone.launched_at == pytest.approx(found["LaunchTime"].timestamp(), abs=1.0)
        assert gone.ended_at == pytest.approx(time.time(), abs=30.0)
