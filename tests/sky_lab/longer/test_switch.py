"""Machines that nobody looks after shut themselves down, in whatever state they are: some four minutes.

SkyPilot ends none of them here: its skylet is dead, or their tags are gone. The machines of this laboratory
have no systemd, so what starts the switch anew is cron (busybox's); and what `shutdown` is asked for, the
test does in the cloud's place.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.access.sdk import SdkApi
from starburst.clouds.sky.machines import machine as machine_module
from starburst.clouds.sky.machines.naming import CONTROLLER, Naming
from starburst.core.model.events import InstanceFailed, InstanceReady
from tests.sky_lab.containers import boxed, engines
from tests.sky_lab.ec2 import ec2, rented
from tests.sky_lab.lab import SCRIPT, Life, job, kill_server, lab
from tests.sky_lab.within import commands, inside, kill_in, kill_ray, root_of

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

PLAIN, SPOT = "aws/us-east-1/c7i.xlarge", "aws/us-east-1/c7i.xlarge/spot"
#: Machines by what becomes of them.
STATES = {"works": PLAIN, "dead-ray": SPOT, "no-agent": PLAIN, "rebooted": SPOT}
#: Seconds: of the last lease, from its end to the switch, and for all machines to be down after it: a minute
#: of cron's, and what a busy host takes.
LEASE_S, AFTER_S, DOWN_S = 25.0, 15.0, 150.0
#: A cron, also after a reboot, for which the registry's start at boot stands in; and a `shutdown` that a
#: machine refuses which has containers of ours.
PREPARE = r"""
cd /usr/local/sbin
cat >shutdown <<'END'
#!/bin/sh
echo "$(date +%s) $*" >>/var/log/shutdown
[ -z "$(docker ps -aq --filter label=starburst.io/run)" ]
END
printf '#!/bin/sh\nexit 1\n' >poweroff
printf '#!/bin/sh\nexec busybox crontab "$@"\n' >crontab
printf '#!/bin/sh\nbusybox crond\nexec /usr/bin/docker-registry "$@"\n' >docker-registry
chmod +x shutdown poweroff crontab docker-registry
mkdir -p /var/spool/cron/crontabs
busybox crond >/dev/null 2>&1 </dev/null
"""
OWN = "docker run -d --network host --name its-own local/busybox:1 sleep 600 >/dev/null"
WORKS = "echo began; sleep 600"


def test_machines_in_every_state_end_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "SWITCH_S", AFTER_S - 60.0)  # an idle minute is part of it
    controllers = [f"lab-{uuid4().hex}" for _ in range(2)]
    with engines(), cleared(controllers):
        asyncio.run(story(tmp_path, *controllers))


@contextmanager
def cleared(controllers: list[str]) -> Iterator[None]:
    """What is left of them is ended, and SkyPilot forgets it."""
    try:
        yield
    finally:
        for controller in controllers:
            if left := [one.id for one in rented(tag_of(controller)) if one.ended_at is None]:
                ec2().terminate_instances(InstanceIds=left)
        lab("up", seconds=300)
        asyncio.run(forgotten(controllers))


async def forgotten(controllers: list[str]) -> None:
    api, known = SdkApi(), {tag_of(controller) for controller in controllers}
    for status in await api.clusters():
        if dict(status.labels).get(CONTROLLER) in known:
            with suppress(SkyError):
                await api.wait(await api.down(status.name))


def tag_of(controller: str) -> str:
    return dict(Naming("", controller).intent("", None))[CONTROLLER]


async def story(home: Path, controller: str, second: str) -> None:
    vms: dict[str, str] = {}
    try:
        async with Life(home / "first", controller) as life:
            vms |= await up(life)
            roots = await at_work(life)
            vms["broken-off"] = await broken_off(home / "second", second)
            kill_server()
            until = {}
            for state in STATES:
                until[state] = time.time() + LEASE_S
                await life.cloud.machines[state].call("exchange", {"lease_s": LEASE_S})
        abandon(vms, roots)
        await all_end(vms, until)
    finally:
        if vms:
            ec2().terminate_instances(InstanceIds=list(vms.values()))


async def up(life: Life) -> dict[str, str]:
    """EC2's ids of the machines, by state."""
    for state, name in STATES.items():
        await life.cloud.launch(state, await life.offer(name))
    for state in STATES:
        await life.heard(InstanceReady, of_machine(state))
    entries = {state: life.cloud.machines[state].entry for state in STATES}
    return {state: entry.at.instance for state, entry in entries.items() if entry.at is not None}


def of_machine(id_: str) -> Callable[[InstanceReady], bool]:
    return lambda event: event.instance_id == id_


async def at_work(life: Life) -> dict[str, int]:
    """Jobs run on the machines, and the keeper stands that is to be killed; the first process of each."""
    roots = {state: root_of(life.host(state)) for state in STATES}
    for state, root in roots.items():
        inside(root, PREPARE)
        assert (await life.cloud.machines[state].greet()).armed
    await life.cloud.start(job("plain", "works", WORKS))
    await life.cloud.start(boxed("boxed", "works", WORKS))
    await life.cloud.start(job("rayless", "dead-ray", WORKS))
    await life.cloud.start(boxed("orphan", "no-agent", WORKS))
    inside(roots["no-agent"], OWN)
    for name in ("plain", "boxed", "rayless", "orphan"):
        await life.written(name, "began")
    await until_true(partial(has_keeper, roots["dead-ray"]), 400.0)  # it comes through SkyPilot's queue
    return roots


async def broken_off(home: Path, controller: str) -> str:
    """A launch of which the machine has its switch and SkyPilot has not done all; nobody goes on with it."""
    async with Life(home, controller, lease_s=LEASE_S) as life:
        await life.cloud.launch("broken-off", await life.offer(PLAIN))

        def has_switch() -> list[str]:
            ends = [event for event in life.events if isinstance(event, (InstanceReady, InstanceFailed))]
            assert not ends, "SkyPilot was faster"
            mine = [one.id for one in rented(tag_of(controller))]
            return [vm for vm in mine if (disk(vm) / "home/ubuntu/starburst/switch.json").exists()]

        await until_true(has_switch, 200.0)
        (vm,) = has_switch()
        inside(first_process(vm), PREPARE)
        return vm


def abandon(vms: dict[str, str], roots: dict[str, int]) -> None:
    """What ends machines for SkyPilot ends here; then what each state is named for."""
    vm = vms["works"]
    (group,) = ec2().describe_instances(InstanceIds=[vm])["Reservations"]
    ec2().delete_tags(Resources=[vm], Tags=[{"Key": tag["Key"]} for tag in group["Instances"][0]["Tags"]])
    reboot(vms["rebooted"], roots["rebooted"])
    for state in ("dead-ray", "no-agent"):
        kill_in(roots[state], lambda word: "sky.skylet" in word)
    kill_in(roots["dead-ray"], is_keeper)
    kill_ray(roots["dead-ray"])
    kill_in(roots["no-agent"], is_agent)


def has_keeper(root: int) -> bool:
    return any(is_keeper(word) for _, words in commands(root) for word in words)


def is_keeper(word: str) -> bool:
    return word.startswith("\nimport fcntl") and "keeper.lock" in word


def is_agent(word: str) -> bool:
    return "starburst/agent-" in word and word.endswith(".pyz")


def reboot(vm: str, root: int) -> None:
    """Its first process dies; once it is gone, a connection boots the machine from its disk."""
    os.kill(root, signal.SIGKILL)
    while Path("/proc", str(root)).exists():
        time.sleep(0.1)
    (address,) = [row[7] for row in (line.split("\t") for line in lab("vms").splitlines()) if row[0] == vm]
    state = Path(os.environ["SKYLAB_HOME"], "state")
    proxy = [str(SCRIPT.with_name("vm-proxy")), str(state), address, "22"]
    nothing = subprocess.DEVNULL
    subprocess.run(proxy, stdin=nothing, stdout=nothing, timeout=60, check=False)
    assert first_process(vm) != root


async def all_end(vms: dict[str, str], until: dict[str, float]) -> None:
    """Each shuts itself down, not before its time, and its cloud ends it for that."""
    left, give_up = dict(vms), time.monotonic() + LEASE_S + AFTER_S + DOWN_S
    while left:
        assert time.monotonic() < give_up, f"not shut down: {left}"
        for state, vm in list(left.items()):
            log = disk(vm) / "var/log/shutdown"
            if not log.exists() or not (said := log.read_text().split()):
                continue
            assert said[1:3] == ["-h", "now"]
            assert float(said[0]) >= until.get(state, 0.0) + AFTER_S - 1, state
            if state == "no-agent":
                await only_its_own_is_left(vm)
            obey(vm)
            del left[state]
        await asyncio.sleep(1)
    # moto takes the order that a shutdown terminates an instance, and forgets it.
    states = ec2().describe_instances(InstanceIds=list(vms.values()))["Reservations"]
    assert {one["State"]["Name"] for group in states for one in group["Instances"]} <= {
        "stopped",
        "terminated",
    }


async def only_its_own_is_left(vm: str) -> None:
    """It may not shut down: of the containers ours are removed, though no agent was left to do so."""
    await until_true(lambda: containers(vm) == ["its-own"], 30.0)


async def until_true(holds: Callable[[], object], seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.5)


def containers(vm: str) -> list[str]:
    argv = ["nsenter", "-t", str(first_process(vm)), "-m", "-p", "-n", "-u", "docker", "ps", "-a"]
    done = subprocess.run([*argv, "--format", "{{.Names}}"], check=True, capture_output=True, timeout=60)
    return done.stdout.decode().split()


def obey(vm: str) -> None:
    """What EC2 does with an instance that shuts itself down."""
    what = "instanceInitiatedShutdownBehavior"
    told = ec2().describe_instance_attribute(InstanceId=vm, Attribute=what)
    (group,) = ec2().describe_instances(InstanceIds=[vm])["Reservations"]
    is_spot = group["Instances"][0].get("InstanceLifecycle") == "spot"
    if is_spot or told["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate":
        ec2().terminate_instances(InstanceIds=[vm])
    else:
        ec2().stop_instances(InstanceIds=[vm])


def disk(vm: str) -> Path:
    return Path(os.environ["SKYLAB_HOME"], "state", "vms", vm, "disk")


def first_process(vm: str) -> int:
    return int((disk(vm).parent / "pid").read_text())
