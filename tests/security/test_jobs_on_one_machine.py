"""A hostile job beside another one on a rented machine: the real agent, as root and as a user with sudo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent import firewall
from starburst.clouds.sky.agent.task_account import FIRST_ID, LAST_ID, MAX_PROCESSES
from tests.clouds.sky.agent_machine import Machine, spec, text

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as sudo gives it"),
]

VICTIM, EVIL = "victim/1/0", "evil/1/0"
KEY = "hunter2-of-the-victim"
PYTHON, NOBODY = "/usr/bin/python3", 65534
#: A network and a /run of its own, in which something listens as the machine's user, as the metadata service,
#: and as a container engine whose socket everybody may use.
WORLD = """
mount -t tmpfs tmpfs /run && mkdir /run/containerd /run/kept || exit 9
ip link set lo up && ip addr add 169.254.169.254/32 dev lo || exit 9
cd "$HOME/served"
/usr/bin/python3 -m http.server --bind 127.0.0.1 8266 >/dev/null 2>&1 &
/usr/bin/python3 -m http.server --bind 169.254.169.254 80 >/dev/null 2>&1 &
/usr/bin/python3 "$HOME/served/sudo.py" "$HOME/sudo" &
/usr/bin/python3 "$HOME/served/engine.py" "$HOME/starburst/runs/evil/1/0/started.json" &
until [ -S /run/kept.sock ]; do sleep 0.05; done
for place in 127.0.0.1/8266 169.254.169.254/80; do
    until (: </dev/tcp/$place) 2>/dev/null; do sleep 0.05; done
done
agent="$AS /usr/bin/python3 -I $HOME/agent.pyz exchange"
runs="$HOME/starburst/runs"
until [ -e "$runs/victim/1/0/began" ] && [ -e "$runs/evil/1/0/began" ]; do
    $agent <"$HOME/ask" >/dev/null
done
until [ -e "$runs/victim/1/0/exit.json" ]; do sleep 0.05; done
$agent <"$HOME/ask-again"
kill %1 %2 %3 %4
"""
#: A stand-in for sudo: a client, and a server that is root and gives a command the client's standard streams.
SUDO = """
import json, os, socket, sys
call = socket.socket(socket.AF_UNIX)
call.connect(os.environ["HOME"] + "/sudo")
socket.send_fds(call, [json.dumps(sys.argv[2:]).encode()], [0, 1, 2])
sys.exit(int(call.recv(10) or 1))
"""
SUDO_SERVER = """
import json, os, socket, subprocess, sys, threading
def serve(call):
    said, fds, _, _ = socket.recv_fds(call, 1 << 16, 3)
    streams = dict(zip(("stdin", "stdout", "stderr"), fds))
    child = subprocess.Popen(json.loads(said), env={"PATH": "/usr/bin:/bin"}, **streams)
    for fd in fds:
        os.close(fd)
    call.sendall(b"%d" % child.wait())
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
door.listen()
while True:
    threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()
"""
#: Sockets of an engine; its own is made anew once the job has begun, as by a restart of the engine.
ENGINE = """
import os, socket, sys, time
open_ = []
def serve(path):
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    os.chmod(path, 0o666)
    door.listen()
    open_.append(door)
for name in ("docker.sock", "containerd/containerd.sock", "kept/socket", "kept.sock"):
    serve(f"/run/{name}")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
os.unlink("/run/docker.sock")
serve("/run/docker.sock")
open("/run/kept/again", "w").close()
time.sleep(1000)
"""
#: What a job tries. Each line that succeeds says what it got.
HOSTILE = """
cd /
for file in {home}/.aws/credentials {home}/.ssh/id {home}/starburst/lease.json {runs}/victim/1/0/spec.json \\
    {victim}/token {runs}/victim/1/0/report/report.json {runs}/victim/1/0/log \\
    {home}/starburst/checkpoints/victim/step {runs}/evil/1/0/spec.json; do
    cat $file 2>/dev/null && echo "READ $file"
    (echo '{{"until": 9e9}}' >$file) 2>/dev/null && echo "WROTE $file"
done
ls {runs} {home}/starburst 2>/dev/null && echo LISTED
cat /proc/1/environ 2>/dev/null | grep -qa . && echo ENVIRON
for process in /proc/[0-9]*; do
    grep -qa 'hunter[2]' $process/environ $process/cmdline 2>/dev/null && echo "SAW $process"
done
ps -e 2>/dev/null | grep -c 'agent[.]pyz' | grep -v '^0$' && echo PROCESSES
kill -9 -1 2>/dev/null; kill -9 1 2>/dev/null
sudo -n true 2>/dev/null && echo SUDO
id -u | grep -qx 0 && echo ROOT
cat >/tmp/connect.py <<'END'
import socket
for place in (("127.0.0.1", 8266), ("169.254.169.254", 80)):
    try:
        socket.create_connection(place, 2).close()
        print("CONNECTED", place)
    except OSError:
        pass
for name in ("run/docker.sock", "var/run/docker.sock", "run/containerd/containerd.sock", "run/kept/socket",
    "run/kept.sock"):
    try:
        socket.socket(socket.AF_UNIX).connect("/" + name)
        print("connects to", name)
    except OSError:
        pass
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname(), 2).close()
print("connects to itself")
END
until [ -e /run/kept/again ]; do sleep 0.05; done
{python} /tmp/connect.py
echo mine >"$STARBURST_CHECKPOINT_DIR/step" && touch "$HOME/x" "$STARBURST_REPORT" /tmp/x &&
    echo "works as ever"
echo to-stderr >/dev/stderr
"""


SAID = """connects to run/kept/socket
connects to run/kept.sock
connects to itself
works as ever
to-stderr
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Where others may look for it; pytest's own directories are closed to them."""
    root = Path(tempfile.mkdtemp(prefix="machine-", dir="/dev/shm"))
    root.chmod(0o755)
    yield root / "home"
    shutil.rmtree(root)
    for program in filter(
        shutil.which, firewall.METADATA
    ):  # the host's own table, for accounts of jobs alone
        entry = f"OUTPUT -m owner --uid-owner {FIRST_ID}-{LAST_ID} -j {firewall.CHAIN}"
        for rule in (f"-D {entry}", f"-F {firewall.CHAIN}", f"-X {firewall.CHAIN}"):
            subprocess.run([program, "-w", "5", *rule.split()], check=False, capture_output=True)


def prepared(home: Path, user: str) -> Machine:
    """A machine with credentials of its user, whose agent is about to start both jobs."""
    machine = Machine(home)
    shutil.rmtree(home / "bin")  # the firewall is the real one
    files = {
        ".aws/credentials": "aws",
        ".ssh/id": "ssh",
        "served/sudo.py": SUDO_SERVER,
        "served/client.py": SUDO,
        "served/engine.py": ENGINE,
    }
    for path, content in files.items():
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_text(content)
    victim = (
        'echo "$KEY" >token; echo "$KEY" >"$STARBURST_CHECKPOINT_DIR/step"; echo {} >"$STARBURST_REPORT";'
        "until [ -e seen ]; do sleep 0.05; done; cat token"
    )
    runs = home / "starburst" / "runs"
    evil = HOSTILE.format(home=home, runs=runs, victim=runs / VICTIM / "work", python=PYTHON)
    specs = {VICTIM: spec("sh", "-c", victim, KEY=KEY), EVIL: spec("bash", "-c", evil)}
    for name, task in specs.items():
        task["checkpoints"] = f"~/starburst/checkpoints/{name.partition('/')[0]}"
    (home / "ask").write_text(json.dumps({"lease_s": 100, "specs": specs, "starts": [VICTIM, EVIL]}))
    (home / "ask-again").write_text(json.dumps({"look": {VICTIM: 0, EVIL: 0}, "hear": {VICTIM: ""}}))
    if user == "sudo":
        machine.program("sudo", f'exec {PYTHON} $HOME/served/client.py "$@"')
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    return machine


def played(machine: Machine, user: str) -> dict[str, Any]:
    """Both jobs, to their ends; what the agent answers then."""
    who = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups" if user == "sudo" else ""
    env = {**machine.env(), "AS": who}
    world = subprocess.Popen(["unshare", "-n", "-m", "bash", "-c", WORLD], env=env, stdout=subprocess.PIPE)
    try:
        runs = machine.home / "starburst" / "runs"
        machine.until_exists(runs / EVIL / "exit.json")
        (runs / VICTIM / "work" / "seen").touch()
        said, _ = world.communicate(timeout=100)
    finally:
        world.kill()
    machine.wait(VICTIM)
    machine.wait(EVIL)
    answer: dict[str, Any] = json.loads(said)
    return answer


@pytest.mark.parametrize("user", ["root", "sudo"])
def test_a_hostile_job_gets_nothing_of_its_neighbour_of_the_agent_or_of_the_machine(
    home: Path, user: str
) -> None:
    machine = prepared(home, user)
    answer = played(machine, user)
    if answer["together"]:
        pytest.skip(f"this machine does not let us: {answer['together']}")
    ranks, starburst = answer["ranks"], home / "starburst"
    assert text(ranks[EVIL]) == SAID
    assert text(ranks[VICTIM]) == f"{KEY}\n", "it lives on, and has what is its own"
    assert [ranks[name]["exit"]["exit_code"] for name in (VICTIM, EVIL)] == [0, 0]
    assert ranks[VICTIM]["report"] is not None, "the agent reads what a job reports"
    owners = [(starburst / "checkpoints" / job).stat().st_uid for job in ("victim", "evil")]
    assert sorted(owners) == [FIRST_ID, FIRST_ID + 1]
    assert not answer["lapsed"]
    assert (starburst / "lease.json").stat().st_uid == (NOBODY if user == "sudo" else 0)


def test_a_job_has_limits_of_its_own_that_it_cannot_raise(home: Path) -> None:
    machine = Machine(home, "many/1/0")
    shows = "ulimit -Hu; ulimit -Hc; ulimit -c 1 2>/dev/null && echo raised; id -u"
    machine.exchange(lease_s=100, specs={"many/1/0": spec("bash", "-c", shows)})
    machine.finish()
    assert text(machine.exchange()) == f"{MAX_PROCESSES}\n0\n{FIRST_ID}\n"


def test_what_a_job_leaves_in_shared_memory_is_seen_by_nobody_and_goes_with_it(home: Path) -> None:
    machine, left = Machine(home, "left/1/0"), Path(f"/dev/shm/left-{home.parent.name}")
    machine.exchange(lease_s=100, specs={"left/1/0": spec("sh", "-c", f"echo theirs >{left} && cat {left}")})
    machine.finish()
    seen = left.exists()
    left.unlink(missing_ok=True)
    assert (text(machine.exchange()), seen) == ("theirs\n", False)


def test_a_second_attempt_of_a_job_has_its_checkpoints(home: Path) -> None:
    machine = Machine(home, "again/1/0")
    machine.exchange(
        lease_s=100, specs={"again/1/0": spec("sh", "-c", "echo 1 >$STARBURST_CHECKPOINT_DIR/step")}
    )
    machine.finish()
    machine.exchange(specs={"again/2/0": spec("sh", "-c", "cat $STARBURST_CHECKPOINT_DIR/step")}, look={})
    machine.finish("again/2/0")
    assert (home / "starburst" / "runs" / "again" / "2" / "0" / "log").read_text() == "1\n"
