"""What a day is made of, tried by itself: its account, faults within a machine, jobs unlike the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from starburst.clouds.sky.machines.naming import CONTROLLER, INTENT
from tests.sky_lab.day.account import Account, count
from tests.sky_lab.day.faults import TYPES
from tests.sky_lab.day.jobs import FROM, KINDS, SAVED
from tests.sky_lab.day.outcomes import said, wrong_steps
from tests.sky_lab.day.verdict import too_many
from tests.sky_lab.day.within_machines import AGENT, CLOCK_OFF, CLOCK_RIGHT, FULL, NOT_FULL
from tests.sky_lab.ec2 import ec2, of_cluster, rented, volumes_left

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

LISTED = """\
i-1\tus-east-1\tus-east-1a\tp3.8xlarge\tspot\trunning\t-\t172.31.16.1
i-2\tus-east-1\tus-east-1a\tc7i.xlarge\ton-demand\tterminated\t-\t172.31.16.2
i-3\tus-east-1\tus-east-1a\tc7i.large\ton-demand\trunning\t-\t172.31.16.3
i-4\tus-east-1\tus-east-1a\tc7i.xlarge\ton-demand\tpending\t-\t172.31.16.4
"""


def test_an_account_that_is_full_sells_no_more_until_a_machine_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    listed = LISTED

    def ask(_account: Account, what: str, **more: str) -> str:
        asked.append(more.get("on", what))
        return listed

    monkeypatch.setattr(Account, "_ask", ask)
    assert count(LISTED.splitlines(), TYPES) == 2  # a person's machine is of another type
    account = Account(2, TYPES)
    account.look()
    account.look()
    assert asked == ["instances", *("0" * len(TYPES)), "instances"]
    listed = LISTED.partition("\n")[2]
    asked.clear()
    account.look()
    assert asked == ["instances", *("1" * len(TYPES))]
    account.sold_out = True
    asked.clear()
    account.look()
    assert asked == ["instances", *("0" * len(TYPES))]


def test_a_full_account_refuses_a_machine_and_what_was_rented_there_is_told_by_the_cloud() -> None:
    tag, kind = f"test-{uuid4().hex[:8]}", "t3.nano"  # which nobody else rents

    def rent(intent: str) -> str:
        tags = {CONTROLLER: tag, INTENT: intent, "skypilot-cluster-name": f"{tag}-{intent}-ab12"}
        tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
        reservation = ec2().run_instances(
            ImageId=ec2().describe_images()["Images"][0]["ImageId"],
            InstanceType=kind,
            MinCount=1,
            MaxCount=1,
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}],
            TagSpecifications=[{"ResourceType": what, "Tags": tagged} for what in ("instance", "volume")],
        )
        return str(reservation["Instances"][0]["InstanceId"])

    def end(*machines: str) -> None:
        ec2().terminate_instances(InstanceIds=machines)

    account = Account(2, (kind,))
    first, second = rent("i-1"), rent("i-2")
    account.look()
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        rent("i-3")
    end(first)
    account.look()
    third = rent("i-3")
    assert not list(too_many(rented(tag), 2))
    assert len(list(too_many(rented(tag), 1))) == 1
    assert of_cluster(f"{tag}-i-2") == {second: "running"}
    assert len(list(volumes_left(tag, rented(tag)))) == 2
    end(second, third)
    assert not list(volumes_left(tag, rented(tag)))
    account.close()


#: A machine's home with what its agent keeps and SkyPilot's runtime, in a mount namespace of its own.
HOME = f"""
mount -t tmpfs tmpfs /home && mkdir -p {AGENT}/runs && echo kept >{AGENT}/file
{sys.executable} -m venv --without-pip /home/ubuntu/skypilot-runtime
tries() {{
    (cat {AGENT}/file; echo new >{AGENT}/file; mkdir {AGENT}/runs/new; echo new >{AGENT}/new) 2>/dev/null
    ls {AGENT} {AGENT}/runs | tr '\\n' ' '; echo
}}
ahead() {{
    /home/ubuntu/skypilot-runtime/bin/python -I -c 'import time; print(int(time.time()))' >/home/says
    [ $(($(cat /home/says) - $(date +%s))) -gt 3500 ] && echo ahead || echo right
}}
"""


def in_a_machine(script: str) -> list[str]:
    """The lines that a script says as `inside` runs it, beside the home above."""
    argv = ["unshare", "-m", "--propagation", "private", "sh", "-c", HOME + script]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def test_a_full_disk_can_be_read_and_not_written_and_has_room_again_afterwards() -> None:
    again = f"({FULL}); ({FULL})"  # the second time it is full already
    said = in_a_machine(f"{again}; tries; {NOT_FULL}; cat {AGENT}/file; {NOT_FULL}; tries")
    full, kept = f"{AGENT}: file runs  {AGENT}/runs: ", "kept"
    assert said == [kept, full, kept, kept, f"{AGENT}: file new runs  {AGENT}/runs: new "]


def test_a_clock_is_an_hour_ahead_for_what_starts_meanwhile() -> None:
    assert in_a_machine(f"ahead; ({CLOCK_OFF}); ahead; {CLOCK_RIGHT}; ahead") == ["right", "ahead", "right"]


def run_of(kind: str, root: Path, beats: int = 3, **env: str) -> subprocess.Popen[str]:
    """The script of a kind of job, begun here as on a machine, with a /tmp below `root`."""
    manifest = next(one for one in KINDS if one.name == kind).manifest("a", beats, None)
    argv = manifest["spec"]["template"]["spec"]["containers"][0]["command"]
    argv[-1] = argv[-1].replace("/tmp/", f"{root}/")
    known = {"STARBURST_JOB": "a", "STARBURST_ATTEMPT": "1", "STARBURST_CHECKPOINT_DIR": str(root)}
    return subprocess.Popen(
        argv, cwd=root, env={**os.environ, **known, **env}, stdout=subprocess.PIPE, text=True
    )


def test_a_job_that_saves_goes_on_from_there_when_it_is_stopped(tmp_path: Path) -> None:
    first = run_of("saves", tmp_path, 1000)
    until = time.monotonic() + 60
    while not any("beat" in mark.read_text() for mark in tmp_path.glob("marks/*")):
        assert time.monotonic() < until
        time.sleep(0.05)
    first.terminate()
    logs = [first.communicate(timeout=60)[0]]
    step = said(logs[0], SAVED)
    assert step is not None
    assert step > 0
    second = run_of("saves", tmp_path, step + 2, STARBURST_ATTEMPT="2")
    logs.append(second.communicate(timeout=60)[0])
    assert (first.returncode, second.returncode, said(logs[1], FROM)) == (0, 0, step)
    assert not list(wrong_steps(logs, set()))
    assert "begin\nend\n" in logs[1]


def test_a_job_with_a_directory_fails_without_it(tmp_path: Path) -> None:
    assert run_of("workdir", tmp_path).wait(60) == 1
    kind = next(kind for kind in KINDS if kind.workdir)
    words = kind.options("a", 3, tmp_path)
    where = Path(words[words.index("--workdir") + 1])
    (where / "along").rename(tmp_path / "along")
    assert run_of("workdir", tmp_path).wait(60) == 0
