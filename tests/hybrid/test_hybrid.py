"""Real Kubernetes and real SkyPilot together, under the config that users begin with: sixteen jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.app.wiring.sky import OWNER
from starburst.clouds.sky.machines.naming import CONTROLLER, Naming
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.cloud import InstancePhase
from starburst.kube.resources import Object
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from tests.kube.live import Live, job_manifest
from tests.sky_lab.ec2 import rented
from tests.sky_lab.lab import lab

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

CONFIG = Path(__file__).parents[2] / "configs" / "hybrid.yaml"
#: Wall seconds: for what a machine's launch or end is part of; from EC2's first billed second until the
#: machine's own first one; and until its end is known, up to which Starburst counts it.
LAUNCH_S, BOOT_S, NOTICE_S = 300.0, 15.0, 60.0

HOST = {"starburst.io/runtime": "host"}
OUT = {**HOST, "starburst.io/queue": "default", "starburst.io/max-wait": "1s"}
HOME = {"starburst.io/queue": "default", "starburst.io/cloud": "never"}
LONG = {"starburst.io/runtime-estimate": "2h"}

#: Saves on SIGTERM in the cloud, and goes on from there at home.
TRAVELLER = """
if [ "$STARBURST_SITE" = cloud ]; then
  trap 'echo 7 >$STARBURST_CHECKPOINT_DIR/step; echo saved; exit 0' TERM
  echo away; while :; do sleep 0.1; done
fi
echo home at step $(cat $STARBURST_CHECKPOINT_DIR/step); echo done
"""
WORK = "echo begun on $STARBURST_SITE; sleep {seconds}; echo done"


def test_sixteen_jobs_on_pods_and_on_rented_machines_whatever_is_killed(hybrid: Live) -> None:
    """Overflow, sharing, preemption, a return with its checkpoint, a kill in the launch; and the bill."""
    (hybrid.root / "checkpoints").mkdir()
    hybrid.let_leave()
    hybrid.configure(yaml.safe_dump(config(hybrid.root)))
    hybrid.up()
    hybrid.chakra()
    fill_the_cluster(hybrid)
    overflow(hybrid)
    killed_in_the_launch(hybrid)
    shared = hybrid.wait_for("four jobs share two machines", lambda: sharing(hybrid), LAUNCH_S)
    preempt(hybrid, shared)
    (hybrid.root / "gate" / "open").touch()
    hybrid.wait_for("all have succeeded", lambda: phases(hybrid) == {"succeeded": 16}, LAUNCH_S)
    hybrid.wait_for("no machine is left", lambda: all_gone(hybrid), LAUNCH_S)
    each_ran_once(hybrid)
    the_traveller_came_home(hybrid)
    hybrid.kubectl("wait", "--for=condition=complete", "job", "--all", "--timeout=60s")
    the_bill_is_right(hybrid)


def config(root: Path) -> dict[str, Any]:
    """The one that users begin with, but for what would take a quarter of an hour."""
    found: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    found["policy"]["t_max"] = "5s"
    found["cluster"]["checkpoints"] = {"hostPath": {"path": str(root / "checkpoints")}}
    found["cluster"]["checkpoints_here"] = str(root / "checkpoints")
    found["cloud"]["instance_types"] = ["p3.8xlarge"]
    found["cloud"]["idle_minutes"] = 1
    return found


def manifest(
    name: str, script: str, keys: dict[str, str], *, gpus: int = 0, gate: Path | None = None, grace_s: int = 2
) -> Object:
    """A Job that runs in a pod, or plainly on a rented machine."""
    made = job_manifest(name, script, gpus=gpus, keys=keys, volume=gate)
    pod = made["spec"]["template"]["spec"]
    pod["schedulerName"], pod["terminationGracePeriodSeconds"] = "chakra", grace_s
    return made


def fill_the_cluster(hybrid: Live) -> None:
    """Two jobs hold all GPUs until a gate opens; four without GPUs find room beside them."""
    gate = hybrid.root / "gate"
    gate.mkdir()
    blocker = f"until [ -e {gate}/open ]; do sleep 0.2; done; echo done"
    hybrid.apply([manifest(f"block-{n}", blocker, HOME, gpus=4, gate=gate) for n in range(2)])
    hybrid.wait_for("the GPUs are taken", lambda: phases(hybrid, "block") == {"running": 2})
    small = [manifest(f"small-{n}", WORK.format(seconds=2), {**HOME, **LONG}) for n in range(4)]
    hybrid.apply(small[:2])
    submit(hybrid, "small", small[2:])


def overflow(hybrid: Live) -> None:
    """Six that cannot wait, half of them by kubectl; four that P lets wait for the GPUs."""
    work = WORK.format(seconds=60)
    away = [manifest(f"gpu-{n}", work, OUT, gpus=2) for n in range(3)]
    keys = {**OUT, **LONG, "starburst.io/checkpoint": "true"}
    traveller = manifest("traveller", TRAVELLER, keys, gpus=2, grace_s=20)
    only = {**OUT, "starburst.io/cloud": "only"}
    plain = [manifest(f"plain-{n}", work, only) for n in range(2)]
    patient = [
        manifest(f"patient-{n}", WORK.format(seconds=2), {"starburst.io/queue": "default", **LONG}, gpus=1)
        for n in range(4)
    ]
    hybrid.apply([*away[:2], plain[0], *patient[:2]])
    submit(hybrid, "rest", [traveller, away[2], plain[1], *patient[2:]])


def submit(hybrid: Live, name: str, manifests: list[Object]) -> None:
    (hybrid.root / f"{name}.yaml").write_text("\n---\n".join(map(json.dumps, manifests)))
    hybrid.run("submit", f"{name}.yaml", "-o", "name")


def killed_in_the_launch(hybrid: Live) -> None:
    """kill -9 while SkyPilot is at it; whoever starts next takes it from there."""

    def launching() -> bool:
        here = [one for one in machines(hybrid).values() if one.phase is InstancePhase.LAUNCHING]
        return bool(here) and bool(rented(tag(hybrid)))

    hybrid.wait_for("EC2 has an instance of ours, and we none", launching, LAUNCH_S)
    hybrid.kill("starburst")
    hybrid.up()


def all_gone(hybrid: Live) -> bool:
    return all(one.ended_at is not None for one in machines(hybrid).values())


def sharing(hybrid: Live) -> list[str]:
    """The machines on which at least two jobs run now, if there are two of them."""
    running = [job for job in jobs(hybrid) if job.phase == "running" and job.site == "cloud"]
    found = [name for name, jobs_there in Counter(job.runs_on for job in running).items() if jobs_there >= 2]
    return found if len(found) >= 2 else []


def preempt(hybrid: Live, shared: list[str]) -> None:
    """The cloud takes the one without the traveller; its jobs start anew, wherever."""
    (home,) = [job.runs_on for job in jobs(hybrid) if job.name == "traveller"]
    (taken,) = [name for name in shared if name != home]
    (instance,) = [one.id for one in rented(tag(hybrid)) if one.intent == taken and one.ended_at is None]
    lab("preempt", instance)
    hybrid.wait_for("its end is known", lambda: machines(hybrid)[taken].preempted, LAUNCH_S)


def each_ran_once(hybrid: Live) -> None:
    """Of all that every attempt of a job wrote, there is one end."""
    for job in hybrid.jobs():
        said = [
            hybrid.run("logs", job["id"], "--attempt", str(number)) for number in range(1, job["attempt"] + 1)
        ]
        assert sum(text.count("done") for text in said) == 1, (job, said)
        assert said[-1].endswith("done\n"), (job, said)
    assert {job["site"] for job in hybrid.jobs()} == {"cluster", "cloud"}


def the_traveller_came_home(hybrid: Live) -> None:
    (job,) = [job for job in hybrid.jobs() if job["name"] == "traveller"]
    assert job["site"] == "cluster"
    assert hybrid.run("logs", job["id"]) == "home at step 7\ndone\n"


def the_bill_is_right(hybrid: Live) -> None:
    """It is billed seconds × price; EC2 counted the same seconds, and has nothing of ours left."""
    found = rented(tag(hybrid))
    real = {one.intent: one for one in found}
    assert len(real) == len(found), "an intent has had two instances"
    told = {one["id"]: one for one in json.loads(hybrid.run("instances", "--all", "-o", "json"))}
    assert told.keys() == real.keys()
    for name, machine in told.items():
        instance = real[name]
        assert instance.ended_at is not None
        billed_s = instance.ended_at - instance.launched_at
        assert billed_s - BOOT_S <= machine["billed_s"] <= billed_s + NOTICE_S, (machine, instance)
        cost = machine["usd_per_hour"] * machine["billed_s"] / 3600
        assert machine["cost_usd"] == pytest.approx(cost, abs=1e-5)
    shares = json.loads(hybrid.run("cost", "--by", "job", "-o", "json"))
    whole = sum(machine["cost_usd"] for machine in told.values())
    assert sum(share["cost_usd"] for share in shares) == pytest.approx(whole, abs=1e-6)


def jobs(hybrid: Live) -> list[JobRow]:
    """As they stand; without the second that a command takes to start, for this is asked all the time."""
    with hybrid.store() as store:
        return queries.jobs(store)


def phases(hybrid: Live, prefix: str = "") -> dict[str, int]:
    return dict(Counter(job.phase for job in jobs(hybrid) if job.name.startswith(prefix)))


def machines(hybrid: Live) -> dict[str, InstanceRecord]:
    """Every machine that was asked for."""
    with hybrid.store() as store:
        return {one.id: one for one in queries.instance_records(store, include_ended=True)}


def tag(hybrid: Live) -> str:
    """What this store's machines are labelled with."""
    with hybrid.store() as store:
        return dict(Naming(OWNER, str(store.fact("controller"))).labels("any", 0.0, 0.0))[CONTROLLER]
