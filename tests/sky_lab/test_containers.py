"""Jobs with images in a real docker, on the laboratory: one machine, some three minutes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pytest

from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.core.model.events import InstanceGone, InstanceReady, RunEnd, RunEnded, RunStarted
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from tests.sky_lab.containers import ENTRY, boxed, engines
from tests.sky_lab.lab import Life, job, vm_at
from tests.sky_lab.test_lab import of
from tests.sky_lab.within import RESTART, commands, inside, kill_in, root_of
from translator.manifests.references import Reference
from translator.tasks.runtime_values import ReferencedData

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

#: Writes what it can reach; a container has root inside, and the network of its machine.
HOSTILE = """
for file in /home/ubuntu /home/ubuntu/.ssh /var/run/docker.sock /run/docker.sock /etc/skylab \
    /starburst/runs; do
    [ -e $file ] && echo "sees $file"
done
for pid in /proc/[0-9]*; do
    grep -aq neighbours-[w]ork $pid/cmdline 2>/dev/null && echo "sees $pid"
    grep -aq neighbours-[t]oken $pid/environ 2>/dev/null && echo "reads $pid"
done
kill -9 -1 2>/dev/null
mknod /disk b 254 0 2>/dev/null && echo "makes devices"
mount -t tmpfs none /tmp 2>/dev/null && echo mounts
/bin/busybox hostname other 2>/dev/null && echo "renames the machine"
for port in 22 5000 6380 8266; do
    echo | /bin/busybox timeout 5 /bin/busybox nc 127.0.0.1 $port >/dev/null 2>&1 && echo "connects to $port"
done
/bin/busybox timeout 5 /bin/busybox wget -qO- http://169.254.169.254/role 2>/dev/null &&
    echo "has the machine's role"
echo over
"""
#: Holds what nobody else may have.
NEIGHBOUR = "echo began; : neighbours-work; sleep 600"
#: Saves when it is told to end.
SAVING = "trap 'echo saving; exit 0' TERM; echo began; while :; do sleep 0.1; done"
#: Shows the files of its volumes.
READS = """
cat /etc/s/token; /bin/busybox stat -c %a /etc/s/token
cat /etc/c/d/a.yaml; /bin/busybox stat -c %a /etc/c/d/a.yaml
(echo x >/etc/s/token) 2>/dev/null && echo writes
/bin/busybox df -k /dev/shm | awk 'END { print $2 }'
echo over
"""
#: A second registry with the same images that asks for a login, as private ones do.
PRIVATE = """
python3 -c 'from crypt import *; print("ada:" + crypt("pass word", mksalt(METHOD_BLOWFISH)))' >/tmp/htpasswd
sed 's/5000/5001/' /etc/skylab/registry.yml >/tmp/private.yml
echo 'auth: {htpasswd: {realm: private, path: /tmp/htpasswd}}' >>/tmp/private.yml
setsid docker-registry serve /tmp/private.yml >/var/log/private.log 2>&1 </dev/null &
"""
PRIVATE_IMAGE = "localhost:5001/local/busybox:1"
SECRET_VOLUME = [{"name": "s", "secret": {"secretName": "hub"}}]
SECRET_MOUNT = [{"name": "s", "mountPath": "/etc/s"}]
#: What the cluster has for it.
DATA = {
    Reference("Secret", "default", "hub"): {"token": "hf_abc\n"},
    Reference("Secret", "default", "pull"): {
        ".dockerconfigjson": json.dumps(
            {"auths": {"localhost:5001": {"username": "ada", "password": "pass word"}}}
        )
    },
    Reference("Secret", "default", "stale"): {
        ".dockerconfigjson": json.dumps({"auths": {"localhost:5001": {"username": "ada", "password": "old"}}})
    },
    Reference("ConfigMap", "default", "settings"): {"a": "lr: 1\n", "b": "not asked for"},
}
#: Shows its rights, its limits and its files.
RIGHTS = """
awk '/^(CapEff|CapBnd|NoNewPrivs):/ { print $2 }' /proc/self/status
cat /sys/fs/cgroup/pids/pids.max; ulimit -c
(echo x >/x) 2>/dev/null && echo "writes to its root"
echo x >/tmp/x && echo "writes to its volume"
echo x >$STARBURST_CHECKPOINT_DIR/x && echo saves
cat /etc/s/token; /bin/busybox stat -c %a,%u /etc/s/token
echo "$TOKEN"
echo over
"""
#: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID; and IPC_LOCK, as in /proc/PID/status.
DEFAULT, LOCK = f"{0xFB:016x}", f"{1 << 14:016x}"
#: Goes on from its save, as a user that the image does not know.
RESUMES = """
cd $STARBURST_CHECKPOINT_DIR
echo "step $(cat d/step 2>/dev/null || echo none) as $(id -u):$(id -g)"; cat /etc/s/token
trap 'mkdir -p d; echo 7 >d/step; chmod 600 d/step; chmod 700 d; echo saved; exit 0' TERM
while :; do sleep 0.1; done
"""
DEAF = "trap '' TERM; echo began; while :; do sleep 0.1; done"
#: A job without an image that looks for the engine, whose socket everybody on this machine may use.
LOOKS = """
for name in docker.sock docker containerd; do
    for above in /run /var/run; do [ -e $above/$name ] && echo "sees $above/$name"; done
done
docker ps >/dev/null 2>&1 && echo "asks the engine"
[ -d /run/sshd ] && echo "the rest is there"
ulimit -c; ulimit -u
echo over
"""
LINES = 2_500_000
#: A metadata service, as clouds have one at this address; and the hierarchies that Ubuntu 20.04 mounts, too:
#: without that of systemd `docker exec` enters no container of this laboratory.
METADATA = """
mkdir -p /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mkdir /sys/fs/cgroup/net_cls && mount -t cgroup -o net_cls cgroup /sys/fs/cgroup/net_cls
mkdir -p /tmp/metadata && echo credentials >/tmp/metadata/role && cd /tmp/metadata
ip addr add 169.254.169.254/32 dev lo
setsid python3 -m http.server --bind 169.254.169.254 80 >/dev/null 2>&1 </dev/null &
"""


def test_containers_in_a_real_engine(tmp_path: Path) -> None:
    with engines():
        asyncio.run(story(tmp_path, f"lab-{uuid4().hex}"))


async def story(home: Path, controller: str) -> None:
    inputs = RunInputs(source=cluster)
    async with Life(home, controller, inputs=inputs) as life:
        await life.cloud.launch("i-1", await life.offer("aws/us-east-1/p3.8xlarge"))
        await life.heard(InstanceReady)
        host = life.host("i-1")
        root = root_of(host)
        inside(root, METADATA)
        inside(root, PRIVATE)
        await life.cloud.start(boxed("refused", "i-1", "true", image="localhost:5000/no/such:1"))
        await what_runs(life)
        await private(life, root)
        await files(life)
        await ends(life)
        await rights(life)
        await resumed(life)
        await kills(life, root)
        await apart(life)
        await complete(life, home)
        await killed(life, root)
        refused = await life.heard(RunEnded, of("refused"))
        assert refused.end is RunEnd.REFUSED, refused
        assert "ImagePullBackOff" in refused.message
        assert "ErrImagePull" in refused.message
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
    assert vm_at(host)[1] != "running"


async def cluster(_manifest: str) -> ReferencedData:
    return ReferencedData("default", DATA)


async def what_runs(life: Life) -> None:
    """Arguments go to the image's entry point, and its variables are there beside the job's."""
    said = 'echo "$IMAGE_SAYS, $NAME"; pwd; nproc'
    more = {"workingDir": "/tmp"}
    need = Resources.of(0, 1, 1)
    await life.cloud.start(boxed("entry", "i-1", said, image=ENTRY, env={"NAME": "a b"}, own=more, need=need))
    assert (await life.heard(RunEnded, of("entry"))).exit_code == 0
    assert await life.written("entry", "\n1\n") == "hello there, a b\n/tmp\n1\n"


async def files(life: Life) -> None:
    """Files of Secrets and ConfigMaps are there, read-only; a volume in memory is one, of its size."""
    pod = {
        "volumes": [
            {"name": "s", "secret": {"secretName": "hub"}},
            {"name": "c", "configMap": {"name": "settings", "items": [{"key": "a", "path": "d/a.yaml"}]}},
            {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        ]
    }
    mounts = {"s": "/etc/s", "c": "/etc/c", "m": "/dev/shm"}
    own = {"volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()]}
    await life.cloud.start(boxed("reads", "i-1", READS, pod=pod, own=own))
    assert (await life.heard(RunEnded, of("reads"))).exit_code == 0
    assert await life.written("reads", "over") == "hf_abc\n400\nlr: 1\n644\n8192\nover\n"


async def private(life: Life, root: int) -> None:
    """An image of a registry with a login is pulled by one of the Secrets that the job names, and no word of
    the login stays on the machine.
    """
    both = {"imagePullSecrets": [{"name": "stale"}, {"name": "pull"}]}
    await life.cloud.start(boxed("unknown", "i-1", "true", image=PRIVATE_IMAGE))
    await life.cloud.start(boxed("known", "i-1", "echo pulled", image=PRIVATE_IMAGE, pod=both))
    assert (await life.heard(RunEnded, of("known"))).exit_code == 0
    assert await life.written("known", "pulled") == "pulled\n"
    refused = await life.heard(RunEnded, of("unknown"))
    assert refused.end is RunEnd.REFUSED, refused
    assert "no basic auth credentials" in refused.message
    words = "-e 'pass word' -e $(printf 'ada:pass word' | base64)"
    inside(root, f"! grep -rls {words} /home /root /starburst /tmp")


async def ends(life: Life) -> None:
    """An exit code of 137 is the command's own unless memory ran out; a stop leaves time to save."""
    little = Resources.of(0, 0, 0.0625)
    await life.cloud.start(boxed("killed", "i-1", "exit 137"))
    await life.cloud.start(boxed("large", "i-1", "tail /dev/zero", need=little))
    await life.cloud.start(boxed("saves", "i-1", SAVING))
    await life.written("saves", "began")
    await life.cloud.stop("saves", 1, 60.0)
    own, large = await life.heard(RunEnded, of("killed")), await life.heard(RunEnded, of("large"))
    assert (own.exit_code, large.exit_code) == (137, 137)
    assert "OOMKilled" in large.message
    assert "OOMKilled" not in own.message
    assert (await life.heard(RunEnded, of("saves"))).end is RunEnd.STOPPED
    assert "saving" in await life.written("saves", "saving")


async def rights(life: Life) -> None:
    """What a container may do, by default and with less; what a job without an image sees of the engine."""
    token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    pod = {"volumes": [*SECRET_VOLUME, {"name": "t", "emptyDir": {}}]}
    own = {"volumeMounts": [*SECRET_MOUNT, {"name": "t", "mountPath": "/tmp"}], "env": [token]}
    bare = {"capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}, "readOnlyRootFilesystem": True}
    await life.cloud.start(boxed("usual", "i-1", RIGHTS, pod=pod, own=own))
    await life.cloud.start(boxed("bare", "i-1", RIGHTS, pod=pod, own={**own, "securityContext": bare}))
    await life.cloud.start(job("looks", "i-1", LOOKS))
    await life.cloud.start(boxed("over", "i-1", 'echo "over: $IMAGE_SAYS"', image=ENTRY, over=True))
    for name in ("usual", "bare", "looks", "over"):
        assert (await life.heard(RunEnded, of(name))).exit_code == 0
    files = "writes to its volume\nsaves\nhf_abc\n400,0\nhf_abc\n\nover\n"
    expected = {
        "usual": f"{DEFAULT}\n{DEFAULT}\n1\n32768\n0\nwrites to its root\n{files}",
        "bare": f"{LOCK}\n{LOCK}\n1\n32768\n0\n{files}",
        "looks": "the rest is there\n0\n32768\nover\n",
        "over": "over: hello there\n",
    }
    assert {name: await life.written(name, "over") for name in expected} == expected


async def resumed(life: Life) -> None:
    """A container that is not root saves within its grace, and its next attempt goes on from there."""
    context = {"runAsUser": 1234, "runAsGroup": 5678}
    more = {
        "pod": {"volumes": SECRET_VOLUME},
        "own": {"securityContext": context, "volumeMounts": SECRET_MOUNT},
    }
    for attempt, step in ((1, "none"), (2, "7")):
        await life.cloud.start(boxed("resumes", "i-1", RESUMES, attempt=attempt, **more))
        said = await life.written("resumes", "hf_abc\n", attempt)
        assert said == f"step {step} as 1234:5678\nhf_abc\n"
        await life.cloud.stop("resumes", attempt, 60.0)
        assert (await life.heard(RunEnded, of("resumes", attempt))).end is RunEnd.STOPPED
        assert (await life.written("resumes", "saved", attempt)).endswith("saved\n")


async def kills(life: Life, root: int) -> None:
    """A container that does not hear is killed after its grace; a kill is not taken for want of memory."""
    await life.cloud.start(boxed("deaf", "i-1", DEAF))
    await life.cloud.start(boxed("inside", "i-1", "sh -c 'kill -KILL $$'; exit $?"))
    await life.cloud.start(boxed("outside", "i-1", "echo began; : to-be-killed; while :; do sleep 1; done"))
    for name in ("deaf", "outside"):
        await life.written(name, "began")
    before = time.monotonic()
    await life.cloud.stop("deaf", 1, 2.0)
    kill_in(root, lambda word: "to-be-killed" in word)
    deaf = await life.heard(RunEnded, of("deaf"))
    assert (deaf.end, deaf.exit_code) == (RunEnd.STOPPED, 137)
    assert time.monotonic() - before >= 2.0
    for name in ("inside", "outside"):
        ended = await life.heard(RunEnded, of(name))
        assert (ended.end, ended.exit_code) == (RunEnd.EXITED, 137)
        assert "OOMKilled" not in ended.message
    assert containers(root) == ""


async def apart(life: Life) -> None:
    """Jobs on one machine have GPUs of their own, and one that tries reaches nothing of another's."""
    secret = {"TOKEN": "neighbours-token"}
    two = Resources.of(2, 1, 1)
    await life.cloud.start(boxed("neighbour", "i-1", NEIGHBOUR, env=secret))
    shows = "echo gpus=$NVIDIA_VISIBLE_DEVICES; echo began; sleep 600"
    for name in ("a", "b"):
        await life.cloud.start(boxed(name, "i-1", shows, need=two))
    said = [await life.written(name, "began") for name in ("neighbour", "a", "b")]
    gpus = [line.removeprefix("gpus=").split(",") for text in said[1:] for line in text.split()[:1]]
    assert sorted(gpu for some in gpus for gpu in some) == ["0", "1", "2", "3"]
    await life.cloud.start(boxed("hostile", "i-1", HOSTILE))
    assert (await life.heard(RunEnded, of("hostile"))).exit_code == 0
    assert await life.written("hostile", "over\n") == "over\n"
    beside = 'echo "$TOKEN"; [ -e /home/ubuntu ] && echo "not in the container"; exit 7'
    told = await life.beside("neighbour", "sh", "-c", beside)
    assert told == (7, "neighbours-token\n"), told
    for name in ("neighbour", "a", "b"):
        assert not [event for event in life.events if isinstance(event, RunEnded) and event.job_id == name]
        await life.cloud.stop(name, 1, 0.0)
    for name in ("neighbour", "a", "b"):
        assert (await life.heard(RunEnded, of(name))).end is RunEnd.STOPPED


async def complete(life: Life, home: Path) -> None:
    """20 MB of output arrive whole."""
    await life.cloud.start(boxed("talks", "i-1", f"seq 1 {LINES}; echo over"))
    assert (await life.heard(RunEnded, of("talks"))).exit_code == 0
    expected = "".join(f"{number}\n" for number in range(1, LINES + 1)) + "over\n"
    assert log_path(home / "runs", "talks", 1).read_text() == expected


async def killed(life: Life, root: int) -> None:
    """Of a task whose agent was killed no container is left, with a live engine and with a dead one."""
    await life.cloud.start(boxed("orphan", "i-1", "echo began; sleep 600"))
    await life.written("orphan", "began")
    kill_in(root, lambda word: "runs/orphan/1/0" in word)
    assert (await life.heard(RunEnded, of("orphan"))).end is RunEnd.LOST
    assert containers(root) == ""
    await life.cloud.start(boxed("second", "i-1", "echo began; sleep 600"))
    await life.written("second", "began")
    kill_in(root, lambda word: "dockerd" in word or "runs/second/1/0" in word)
    assert (await life.heard(RunEnded, of("second"))).end is RunEnd.LOST
    assert not [pid for pid, words in commands(root) if "sleep 600" in " ".join(words)]
    inside(root, RESTART)
    await life.cloud.start(boxed("third", "i-1", "echo again"))
    await life.heard(RunStarted, of("third"))
    assert (await life.heard(RunEnded, of("third"))).exit_code == 0
    await life.cloud.start(job("plain", "i-1", "echo here"))
    assert (await life.heard(RunEnded, of("plain"))).exit_code == 0


def containers(root: int) -> str:
    """Ids of the containers of a machine, dead ones included."""
    argv = ["nsenter", "-t", str(root), "-m", "-p", "-n", "-u", "docker", "ps", "-aq"]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
