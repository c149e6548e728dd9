"""Secrets and ConfigMaps of jobs that leave: read when they start, and kept nowhere but on their machine."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.runs.docker import container
from starburst.clouds.sky.runs.spec import filled
from starburst.core.model.events import InstanceReady, RunEnd, RunEnded, RunStarted
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, run_of
from tests.clouds.sky.test_crashes import Death
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.runtime_values import NotNowError, ReferencedData, RuntimeValues, UnresolvedError

LOGIN, LIMITS = Reference(SECRET, "ns", "login"), Reference(CONFIG_MAP, "ns", "limits")


@dataclass
class Cluster:
    """What a manifest refers to; `down` that many times."""

    data: dict[Reference, dict[str, str] | None] = field(
        default_factory=lambda: {LOGIN: {"password": "s3cret"}, LIMITS: {"lr": "0.125"}}
    )
    down: int = 0
    denied: str = ""
    asked: int = 0

    async def __call__(self, manifest: str) -> ReferencedData:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.down:
            self.down -= 1
            raise NotNowError("no route to host")
        if self.denied:
            raise UnresolvedError(self.denied)
        return ReferencedData("ns", self.data)


def manifest(*command: str) -> str:
    """Takes a password, also as a file, something made of it, and a setting."""
    env = [
        {"name": "PLAIN", "value": "yes"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
        {"name": "URL", "value": "db://$(PASSWORD)@$(PLAIN)"},
        {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "limits", "key": "lr"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "STARBURST_JOB", "value": "mine"},
    ]
    mount = {"name": "v", "mountPath": "/etc/login"}
    container = {"command": list(command), "env": env, "volumeMounts": [mount]}
    volumes = [{"name": "v", "secret": {"secretName": "login"}}]
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    whole = {"kind": "Pod", "metadata": {"name": "train", "namespace": "ns"}, "spec": spec}
    return json.dumps({"apiVersion": "v1", **whole})


def late(job: str, work_s: float = 20, *where: str, **more: Any) -> Run:
    made = run_of(job, work_s, 0, 1, *where, **more)
    workload = replace(made.workload, env=(("PLAIN", "yes"),), manifest=manifest("work", str(work_s), "0"))
    return replace(made, workload=workload)


Story = Callable[[Life, FakeSky, Cluster], Coroutine[Any, Any, None]]


def play(tmp_path: Path, story: Story, **cluster: Any) -> None:
    async def main() -> None:
        sky, there = FakeSky(tmp_path / "sky"), Cluster(**cluster)
        async with Life(sky, tmp_path / "home", source=there) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            await story(life, sky, there)

    run(main())


def on_disk(home: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in home.rglob("*") if path.is_file())


def test_a_run_is_given_its_values_and_nothing_here_remembers_them(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky, cluster: Cluster) -> None:
        await life.cloud.start(late("a"))
        await life.heard(RunStarted)
        spec = sky.vms[0].tasks["a/1/0"].spec
        assert spec["secrets"] == {"PASSWORD": "s3cret", "URL": "db://s3cret@yes"}
        assert {name: spec["env"][name] for name in ("PLAIN", "LR", "IP", "STARBURST_JOB")} == {
            "PLAIN": "yes",
            "LR": "0.125",
            "IP": "10.0.0.1",
            "STARBURST_JOB": "a",
        }
        assert not {"PASSWORD", "URL"} & spec["env"].keys()
        (mount,), (file,) = spec["mounts"], spec["files"]
        assert (mount["path"], mount["files"], mount["read_only"]) == ("/etc/login", True, True)
        assert (file["path"], base64.b64decode(file["content"]), file["secret"]) == (
            "password",
            b"s3cret",
            True,
        )
        seen = on_disk(life.home)
        assert "login" in seen, "its manifest is noted as its user wrote it"
        assert (await life.heard(RunEnded)).exit_code == 0
        for value in ("s3cret", "0.125"):
            assert value not in seen + on_disk(life.home) + repr(life.events)
        assert cluster.asked == 1

    play(tmp_path, story)


def test_a_cluster_that_does_not_answer_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(life: Life, sky: FakeSky, cluster: Cluster) -> None:
        await life.cloud.start(late("a"))
        while cluster.down:
            assert not life.of(RunEnded)
            assert not sky.vms[0].tasks
            await asyncio.sleep(1)
        assert (await life.heard(RunEnded)).exit_code == 0
        assert cluster.asked == 4

    play(tmp_path, story, down=3)
    assert "values-not-read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ({"data": {LOGIN: None, LIMITS: {"lr": "1"}}}, "there is no Secret login in namespace ns; create it"),
        ({"data": {LOGIN: {}, LIMITS: {"lr": "1"}}}, "Secret login has no key password; add it"),
        ({"denied": "Starburst may not read Secret login"}, "Starburst may not read Secret login"),
    ],
)
def test_a_run_whose_secret_is_missing_ends_at_once_and_says_which(
    tmp_path: Path, cluster: dict[str, Any], why: str
) -> None:
    async def story(life: Life, sky: FakeSky, _cluster: Cluster) -> None:
        await life.cloud.start(late("a"))
        end = await life.heard(RunEnded)
        assert end.end is RunEnd.REFUSED
        assert why in end.message
        assert all(task.begun == 0 for task in sky.vms[0].tasks.values())

    play(tmp_path, story, **cluster)


def test_without_a_cluster_such_a_run_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with Life(FakeSky(tmp_path / "sky"), tmp_path / "home") as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            await life.cloud.start(late("a"))
            end = await life.heard(RunEnded)
            assert (end.end, "Kubernetes" in end.message) == (RunEnd.REFUSED, True)

    run(main())


def test_a_gang_reads_once_and_each_task_is_told_of_its_own_machine(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky, cluster: Cluster) -> None:
        await life.cloud.launch("i-2", OFFER)
        await life.heard(InstanceReady, lambda event: event.instance_id == "i-2")
        await life.cloud.start(late("g", 20, "i-1", "i-2"))
        assert (await life.heard(RunEnded)).exit_code == 0
        secrets = [vm.tasks[f"g/1/{rank}"].spec["secrets"] for rank, vm in enumerate(sky.vms)]
        assert secrets[0] == secrets[1] != {}
        assert cluster.asked == 1

    play(tmp_path, story)


def test_a_run_that_is_stopped_before_its_values_came_starts_nowhere(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky, cluster: Cluster) -> None:
        await life.cloud.start(late("a"))
        await asyncio.sleep(3)
        await life.cloud.stop("a", 1, 5.0)
        assert (await life.heard(RunEnded)).end is RunEnd.STOPPED
        asked = cluster.asked
        await asyncio.sleep(60)
        assert (cluster.asked, sky.vms[0].tasks["a/1/0"].begun) == (asked, 0)

    play(tmp_path, story, down=10**6)


@pytest.mark.parametrize("after_s", [0.3, 1.5, 2.5, 8.0])
def test_after_a_restart_it_is_read_again_only_for_machines_that_do_not_know_their_task(
    tmp_path: Path, after_s: float
) -> None:
    async def main() -> None:
        sky, before, after = FakeSky(tmp_path / "sky"), Cluster(), Cluster()
        async with Life(sky, tmp_path / "home", source=before) as life:
            await life.cloud.launch("i-1", OFFER)
            await life.heard(InstanceReady)
            await life.cloud.start(late("a"))
            await asyncio.sleep(after_s)
            known = "a/1/0" in sky.vms[0].tasks
        async with Life(sky, tmp_path / "home", source=after) as life:
            assert (await life.heard(RunEnded)).exit_code == 0
        task = sky.vms[0].tasks["a/1/0"]
        assert (task.begun, task.spec["secrets"]["PASSWORD"]) == (1, "s3cret")
        assert after.asked == (0 if known else 1)

    run(main())


@pytest.mark.parametrize("part", range(3))
def test_a_crash_at_any_point_starts_it_once_with_its_values_and_notes_none(
    tmp_path: Path, part: int
) -> None:
    async def story(life: Life) -> RunEnded:
        await life.cloud.launch("i-1", OFFER)
        await life.heard(InstanceReady)
        await life.cloud.start(late("a", 5))
        return await life.heard(RunEnded)

    async def lives(home: Path, crash_at: int) -> tuple[FakeSky, RunEnded, bool]:
        sky, death = FakeSky(home / "sky"), Death(crash_at)
        async with Life(sky, home / "home", death, source=Cluster()) as first:
            telling = asyncio.create_task(story(first))
            dying = asyncio.create_task(death.came.wait())
            await asyncio.wait({telling, dying}, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            if telling.done():
                return sky, telling.result(), True
            telling.cancel()
        async with Life(sky, home / "home", source=Cluster()) as second:
            return sky, await story(second), False

    for crash_at in itertools.count(1 + part, 3):
        home = tmp_path / str(crash_at)
        sky, end, through = run(lives(home, crash_at))
        task = sky.vms[0].tasks["a/1/0"]
        assert (end.end, end.exit_code, task.begun) == (RunEnd.EXITED, 0, 1), crash_at
        assert task.spec["secrets"]["PASSWORD"] == "s3cret", crash_at
        assert "s3cret" not in on_disk(home), crash_at
        if through:
            return


def test_a_container_takes_its_command_and_settings_anew() -> None:
    workload = Workload(("old",), image="me/train", working_dir="/w")
    made = container("n", workload, Resources.of(0, 1, 1), {})
    spec = {
        "command": ["old"],
        "cwd": "/w",
        "env": {"STARBURST_RANK": "0", "URL": "db://$(PASSWORD)"},
        "docker": {"name": "n", "image": made["image"], "options": made["options"]},
    }
    plain, secret = {"LR": "0.1", "PEM": "a\nb"}, {"URL": "db://s3cret"}
    found = filled(spec, RuntimeValues(plain, secret, ("new", "--lr=0.1"), logins=(("ann", "w0rd"),)))
    assert found["docker"]["rest"] == ["--workdir=/w", "--entrypoint=new", "--", "me/train", "--lr=0.1"]
    assert found["docker"]["env_file"].splitlines()[:2] == ["LR=0.1", "STARBURST_RANK=0"]
    assert found["docker"]["env"] == {"PEM": "a\nb"}
    assert found["secrets"] == {"URL": "db://s3cret"}
    assert "s3cret" not in str({key: value for key, value in found.items() if key != "secrets"})
    assert found["logins"] == [{"registry": "docker.io", "username": "ann", "password": "w0rd"}]
    assert "w0rd" not in str({key: value for key, value in found.items() if key != "logins"})


def test_a_secret_cannot_change_the_settings_of_the_container_engine() -> None:
    workload = Workload(("x",), image="me/train")
    box = {"image": "me/train", "options": container("n", workload, Resources(), {})["options"]}
    spec = {"command": ["x"], "cwd": None, "env": {}, "docker": box}
    with pytest.raises(UnresolvedError, match="a Secret's value cannot be given as DOCKER_HOST"):
        filled(spec, RuntimeValues({}, {"DOCKER_HOST": "tcp://me"}, ("x",)))
    assert filled({**spec, "docker": None}, RuntimeValues({}, {"PATH": "/x"}, ("x",)))["secrets"] == {
        "PATH": "/x"
    }
