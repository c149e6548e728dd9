"""Kinds of jobs of a day: what each runs, needs and has to come to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starburst.domain.job import Phase
from tests.sky_lab.marks import BEATS, BEGIN, BOXED, END, LOGGED

#: The image of jobs in containers, where the laboratory's machines have an engine; and one that nobody has.
IMAGE, NO_IMAGE = "localhost:5000/local/busybox:1", "localhost:5000/no/such:1"
#: Bytes that the kinds "logs" and "gigabyte" write; and how many of one log the home keeps.
LOG_BYTES, GIGABYTE, MAX_LOG = 20_000_000, 1_000_000_000, 50_000_000
#: What Starburst keeps of a longer log's end, and adds to a log at most, bytes.
LOG_END, WORDS = 65_536, 200
#: What the file says that goes along with the kind "workdir".
ALONG = "what goes along"
#: Bytes of the machine's disk that the kind "fills" takes.
FILLS = 2_000_000_000
#: What every job has in its environment and in a file, except for those that look for it; and before what
#: these found in their log.
SECRET, STOLEN = "secret-of-the-day", "stolen"
#: What a child that the kind "forks" leaves behind says of itself, in the job's /tmp.
ORPHAN = "orphan"
#: Before the steps that the kind "saves" begins with and has saved, in its log.
FROM, SAVED = "goes on from", "has saved"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job."""

    name: str
    script: str
    gpus: int = 0
    retries: int = 0
    #: Phases that it may end in.
    ends: frozenset[Phase] = frozenset({Phase.SUCCEEDED})
    #: It is cancelled once it runs, or told to run anew.
    cancelled: bool = False
    requeued: bool = False
    #: It saves how far it is when it is told to end, and goes on from there.
    saves: bool = False
    #: It has a directory of the user's with it.
    workdir: bool = False
    image: str | None = None
    #: More of its pod and of its container.
    pod: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    #: Bytes of its log in the home: the least and the most.
    log: tuple[int, int] | None = None
    #: It takes more memory than it asked for. Where that is a limit it has failed, and elsewhere succeeds.
    greedy: bool = False
    #: Whether it has nothing to hide, and looks for what the others have.
    spies: bool = False

    def manifest(self, name: str, beats: int, spot: bool | None) -> dict[str, Any]:
        """The Job of this name; it lives for so many fifths of a second, on spot or on-demand machines."""
        script = self.script.replace("{beats}", str(beats))
        container: dict[str, Any] = {
            "name": "main",
            "command": ["sh" if self.image else "bash", "-c", script if self.spies else HOLDS + script],
            "resources": {"requests": {"cpu": 1, "memory": "256Mi"}},
        }
        if not self.spies:
            container["env"] = [{"name": "SECRET", "value": f"{SECRET}, {name}"}]
        if self.gpus:
            container["resources"]["limits"] = {"nvidia.com/gpu": self.gpus}
        if self.image:
            container["image"] = self.image
        container |= self.own
        keys = {"starburst.io/cloud": "only"}
        if self.saves:
            keys["starburst.io/checkpoint"] = "true"
        if spot is not None:
            keys["starburst.io/use-spot"] = str(spot).lower()
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}
        spec |= self.pod
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": keys},
            "spec": {"backoffLimit": self.retries, "template": {"spec": spec}},
        }

    def options(self, name: str, beats: int, root: Path) -> list[str]:
        """The words of `starburst submit` for a job with a directory, which is made below `root`."""
        here = root / "workdir"
        here.mkdir(exist_ok=True)
        (here / "along").write_text(f"{ALONG}\n")
        script = HOLDS + self.script.replace("{beats}", str(beats))
        words = [
            "--workdir",
            str(here),
            "--name",
            name,
            "--cloud",
            "only",
            "--cpus",
            "1",
            "--memory",
            "256Mi",
        ]
        return [*words, "--env", f"SECRET={SECRET}, {name}", "--", "bash", "-c", script]


HOLDS = "echo $SECRET >/tmp/secret\n"
#: Looks into every place that jobs share with others, and ends what it may; its own words are not found.
SPIES = f"""
for place in /home/*/starburst /home/*/.ssh /home/*/.aws /home/*/.sky/*.db /tmp /var/tmp /starburst; do
    grep -rl '{SECRET[:-1]}[{SECRET[-1]}]' $place 2>/dev/null | sed 's/^/{STOLEN} file /'
done
for process in /proc/[0-9]*; do
    grep -q '{SECRET[:-1]}[{SECRET[-1]}]' $process/environ $process/cmdline 2>/dev/null &&
        echo {STOLEN} from $process
done
kill -9 -1 2>/dev/null
"""
PLAIN = BEGIN + BEATS + END
FORKS = (
    BEGIN
    + f"(setsid sh -c 'while sleep .2; do date +%s.%N >>/tmp/{ORPHAN}; done' >/dev/null 2>&1 &)\nsleep 1\n"
    + END
)
DEAF = (
    "trap '' TERM\n" + BEGIN + "for i in $(seq 5000); do sleep .2; echo beat $(date +%s.%N) >>$mark; done\n"
)
MEMORY = BEGIN + 'python3 -c "x = bytearray(600 << 20)" || exit 1\n' + END
#: Its buffer is larger than what it asked for.
BOXED_MEMORY = f"echo {LOGGED} begin $(date +%s)\nexec dd if=/dev/zero of=/dev/null bs=600M count=1\n"
FILLED = BEGIN + f"fallocate -l {FILLS} /tmp/full && rm /tmp/full || exit 1\n" + BEATS + END
#: Its volume has 16 MiB, which it must feel before the 64th is written.
BOXED_FILLED = "dd if=/dev/zero of=/fill/it bs=1M count=64 2>/dev/null && exit 1\n" + BOXED
FILL = {"volumes": [{"name": "fill", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]}
FILL_AT = {"volumeMounts": [{"name": "fill", "mountPath": "/fill"}]}
#: Counts its beats over all attempts.
SAVES = f"""
step=$(cat $STARBURST_CHECKPOINT_DIR/step 2>/dev/null || echo 0); echo {FROM} $step
trap 'echo $step >$STARBURST_CHECKPOINT_DIR/step; echo {SAVED} $step; exit 0' TERM
{BEGIN}
while [ $step -lt {{beats}} ]; do sleep .2; step=$((step + 1)); echo beat $(date +%s.%N) >>$mark; done
{END}"""
WORKDIR = BEGIN + f'[ "$(cat along)" = "{ALONG}" ] || exit 1\n' + BEATS + END
GIGABYTES = BEGIN + f"yes {'x' * 98} | head -c {GIGABYTE}\n" + END
LOGS = BEGIN + f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x | fold -w 99\n" + END

KINDS = (
    Kind("plain", PLAIN),
    Kind("gpu1", PLAIN, gpus=1),
    Kind("gpu2", PLAIN, gpus=2),
    Kind("gpu4", PLAIN, gpus=4),
    Kind("gpu8", PLAIN, gpus=8),
    Kind("forks", FORKS),
    Kind("deaf", DEAF, ends=frozenset({Phase.CANCELLED}), cancelled=True),
    Kind("memory", MEMORY, ends=frozenset({Phase.SUCCEEDED, Phase.FAILED}), greedy=True),
    Kind("logs", LOGS, log=(LOG_BYTES, LOG_BYTES * 11 // 10)),
    Kind("gigabyte", GIGABYTES, log=(MAX_LOG, MAX_LOG + LOG_END + WORDS)),
    Kind("fills", FILLED),
    Kind("saves", SAVES, requeued=True, saves=True),
    Kind("workdir", WORKDIR, workdir=True),
    Kind("short", BEGIN + END),
    Kind("fails", BEGIN + "exit 3\n", retries=2, ends=frozenset({Phase.FAILED})),
    Kind("spy", BEGIN + SPIES + BEATS + END, spies=True),
)
IN_CONTAINERS = (
    Kind("image", BOXED, image=IMAGE),
    Kind("image-gpu", BOXED, image=IMAGE, gpus=1),
    Kind("image-spy", SPIES + BOXED, image=IMAGE, spies=True),
    Kind("image-memory", BOXED_MEMORY, image=IMAGE, ends=frozenset({Phase.FAILED}), greedy=True),
    Kind("image-fills", BOXED_FILLED, image=IMAGE, pod=FILL, own=FILL_AT),
    Kind("no-image", BOXED, image=NO_IMAGE, ends=frozenset({Phase.FAILED})),
)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of the day. Times are seconds after its begin."""

    name: str
    kind: Kind
    at_s: float
    beats: int
    #: On spot machines only, on demand only, or whatever is cheapest.
    spot: bool | None


def kinds() -> tuple[Kind, ...]:
    """The kinds that this laboratory can run."""
    return (*KINDS, *IN_CONTAINERS) if os.environ.get("SKYLAB_DOCKER") else KINDS
