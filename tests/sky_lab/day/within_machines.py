"""What goes wrong within one machine: its disk is full, its clock is off."""

from __future__ import annotations

from tests.sky_lab.day.world import Undo, World
from tests.sky_lab.within import first_process, inside, unless_gone

#: What the agent keeps there, with the directories of tasks.
AGENT = "/home/ubuntu/starburst"
#: Lays a file system without room over the agent's directory: all that is there can be read, and nothing
#: written, made or removed. The host's disk has as much room as before; tasks that run see theirs as before.
FULL = f"""
set -e
if [ ! -d {AGENT} ] || mountpoint -q {AGENT}; then exit; fi
mkdir -p /run/full && mount -t tmpfs -o size=64k,nr_inodes=16 tmpfs /run/full
cd /run/full && mkdir up work
chown --reference={AGENT} up && chmod --reference={AGENT} up
mount -t overlay overlay -o lowerdir={AGENT},upperdir=/run/full/up,workdir=/run/full/work {AGENT}
head -c 1M /dev/zero >fill 2>/dev/null || true
n=0; while (: >$n) 2>/dev/null; do n=$((n + 1)); done
"""
NOT_FULL = f"mountpoint -q {AGENT} && umount -l {AGENT} && umount -l /run/full || true"
#: Every Python of SkyPilot's runtime that starts meanwhile, which the agent's are, has a clock an hour ahead.
#: Machines share the host's clock, which has no namespace.
CLOCK_OFF = """
set -e
for place in /home/ubuntu/skypilot-runtime/lib/python3*/site-packages; do
    echo 'import time; time.time = (lambda true: lambda: true() + 3600)(time.time)' >$place/clock-off.pth
done
"""
CLOCK_RIGHT = "rm -f /home/ubuntu/skypilot-runtime/lib/python3*/site-packages/clock-off.pth"


def disk_full(_world: World, vm: str) -> Undo:
    """The agent's disk has no room."""
    return _between(vm, FULL, NOT_FULL)


def clock_off(_world: World, vm: str) -> Undo:
    """The agent's clock is an hour ahead."""
    return _between(vm, CLOCK_OFF, CLOCK_RIGHT)


def _between(vm: str, do: str, undo: str) -> Undo:
    def run(script: str) -> None:
        if (root := first_process(vm)) is not None:
            unless_gone(vm, lambda: inside(root, script))

    run(do)
    return lambda: run(undo)
