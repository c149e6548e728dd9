"""Kinds of jobs of a day: what each runs, needs and has to come to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from starburst.domain.job import Phase
from tests.sky_lab.marks import BEATS, BEGIN, BOXED, END

#: The image of jobs in containers, where the laboratory's machines have an engine; and one that nobody has.
IMAGE, NO_IMAGE = "localhost:5000/local/busybox:1", "localhost:5000/no/such:1"
#: Bytes that the kind "logs" writes.
LOG_BYTES = 20_000_000
#: What every job has in its environment and in a file, except for those that look for it; and before what
#: these found in their log.
SECRET, STOLEN = "secret-of-the-day", "stolen"
#: What a child that the kind "forks" leaves behind says of itself, in the job's /tmp.
ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job."""

    name: str
    script: str
    gpus: int = 0
    retries: int = 0
    #: Phases that it may end in.
    ends: frozenset[Phase] = frozenset({Phase.SUCCEEDED})
    #: It is cancelled once it runs.
    cancelled: bool = False
    image: str | None = None
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
        keys = {"starburst.io/cloud": "only"}
        if spot is not None:
            keys["starburst.io/use-spot"] = str(spot).lower()
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": keys},
            "spec": {"backoffLimit": self.retries, "template": {"spec": spec}},
        }


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
LOGS = BEGIN + f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x | fold -w 99\n" + END

KINDS = (
    Kind("plain", PLAIN),
    Kind("gpu1", PLAIN, gpus=1),
    Kind("gpu2", PLAIN, gpus=2),
    Kind("gpu4", PLAIN, gpus=4),
    Kind("gpu8", PLAIN, gpus=8),
    Kind("forks", FORKS),
    Kind("deaf", DEAF, ends=frozenset({Phase.CANCELLED}), cancelled=True),
    # A machine with control groups kills it, one without lets it be.
    Kind("memory", MEMORY, ends=frozenset({Phase.SUCCEEDED, Phase.FAILED})),
    Kind("logs", LOGS),
    Kind("short", BEGIN + END),
    Kind("fails", BEGIN + "exit 3\n", retries=2, ends=frozenset({Phase.FAILED})),
    Kind("spy", BEGIN + SPIES + BEATS + END, spies=True),
)
IN_CONTAINERS = (
    Kind("image", BOXED, image=IMAGE),
    Kind("image-gpu", BOXED, image=IMAGE, gpus=1),
    Kind("image-spy", SPIES + BOXED, image=IMAGE, spies=True),
    Kind("no-image", BOXED, image=NO_IMAGE, ends=frozenset({Phase.FAILED})),
)


def kinds() -> tuple[Kind, ...]:
    """The kinds that this laboratory can run."""
    return (*KINDS, *IN_CONTAINERS) if os.environ.get("SKYLAB_DOCKER") else KINDS
