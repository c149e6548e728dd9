"""What keeps a machine up while it is leased, and ends it when its lease runs out.

SkyPilot gives a machine back after minutes without a job in its own queue (`autostop … down`). So a keepalive
job stands in that queue, whatever else works on the machine, for as long as the lease is renewed. Renewals
cost no call of SkyPilot: setting `autostop` anew would not postpone it, only a job, or cancelling it first,
does. They postpone it in the skylet's own database, too (`agent/autostop.py`), since a keepalive counts for
nothing once the machine's Ray is dead. Without renewals the runs end (their supervisors look at the same
lease), then the keepalive, then SkyPilot's autostop fires; and if SkyPilot does not end the machine, its own
shutdown switch does (`agent/dead_man_switch.py`).

The keepalive comes by `sky exec` once the machine is up; as the `run` of the launch it would hold all GPUs.
It holds a lock that every exchange looks at: a killed one is replaced, and a second one ends soon.
"""

from __future__ import annotations

import structlog

from starburst.aio import Backoff
from starburst.clouds.sky.access.ports import SkyError, SkyUnreachableError
from starburst.clouds.sky.machines.machine import RentedMachine

log = structlog.get_logger()

#: Name of the keepalive in the queue.
KEEPER = "sb-keeper"

#: Seconds between the script's looks at the lease.
LOOK_S = 5

#: Wall seconds: between attempts to put a keepalive there, at first and at most; and for a keepalive to
#: begin, coming through SkyPilot's queue.
FIRST_PAUSE_S, LONGEST_PAUSE_S, KEEPER_S = 1.0, 30.0, 120.0

_SCRIPT = """mkdir -p ~/starburst && cd ~/starburst && exec python3 -u -c '
import fcntl, json, os, time
lock = open("keeper.lock", "a")
for _ in range(20):  # who looks whether it is held takes it for an instant
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.2)
else:
    raise SystemExit
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
up = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
if not os.path.exists("lease.json"):
    lease = {"until": time.time() + %(lease_s)g, "boot": boot, "until_boottime": up() + %(lease_s)g}
    with open("lease.first", "w") as file:
        json.dump(lease, file)
    os.rename("lease.first", "lease.json")
while True:
    with open("lease.json") as file:
        lease = json.load(file)
    if lease.get("boot") == boot:  # as in runs/supervisor/lease.py: the clock of the wall may be set
        left_s = lease["until_boottime"] - up()
    else:
        left_s = lease["until"] - time.time()
    if left_s <= 0:
        break
    time.sleep(%(look_s)d)
'"""


def keeper(lease_s: float) -> str:
    """The keepalive's script; it sets the lease of a machine that was never renewed."""
    return _SCRIPT % {"lease_s": lease_s, "look_s": LOOK_S}


async def secure(machine: RentedMachine) -> None:
    """Until a machine has its keepalive and its armed switch, or takes no more runs. May be repeated."""
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while machine.takes_runs and not is_secured(machine):
        try:
            await _secure(machine)
        except SkyError as error:
            log.warning("no-keeper-yet", instance=machine.id, error=str(error))
            if isinstance(error, SkyUnreachableError):
                machine.suspect()
        if not is_secured(machine):
            if not machine.entry.armed:
                log.warning("no-switch-yet", instance=machine.id)
            await backoff.pause()


async def _secure(machine: RentedMachine) -> None:
    entry, context = machine.entry, machine.context
    if not entry.armed and entry.access is not None:
        entry.armed = (await machine.greet()).armed
    if not (entry.kept or entry.lost):
        script = keeper(context.settings.lease_s)
        await context.sky.wait(await context.sky.exec(machine.cluster, KEEPER, script))
        entry.kept, machine.kept_at = True, context.clock.wall()
    machine.save()


def is_secured(machine: RentedMachine) -> bool:
    """Whether a machine has its keepalive and its armed switch.

    SkyPilot takes no keepalive for a cluster that lost a machine; renewals still postpone its autostop.
    """
    return (machine.entry.kept or bool(machine.entry.lost)) and machine.entry.armed


def note_protection(machine: RentedMachine, *, kept: bool, armed: bool) -> None:
    """Journal whether a machine says that its keepalive stands and its switch is armed.

    A keepalive that was put there a moment ago may not have begun: it counts as lost after `KEEPER_S` only.
    """
    entry = machine.entry
    overdue = machine.context.clock.wall() - machine.kept_at > KEEPER_S
    lost = entry.kept and not kept and overdue
    if lost:
        log.warning("keeper-lost", instance=machine.id)
    if lost or entry.armed is not armed:
        entry.kept, entry.armed = entry.kept and not lost, armed
        machine.save()
