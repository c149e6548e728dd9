"""What holds off SkyPilot's autostop: a job of its queue that ends when our lease on the machine passes.

SkyPilot gives a machine back after minutes without a job in its queue (`autostop … down`). It counts only
jobs of its own queue, so the keeper stands there for whatever else works on the machine, as long as the
lease is renewed; that costs no SkyPilot call (setting `autostop` anew would not put it off: only a job, or
cancelling it first, does). Without renewals the runs end (their shims look at the same lease), then the
keeper, then the machine; and if SkyPilot does not end it, the machine does (`agent/dead_man_switch.py`).

It comes by `sky exec` after the machine is up. As the `run` of the launch it would hold all its GPUs. It
holds a lock, which every exchange looks at: one that was killed is put there again, a second one ends soon.
"""

from __future__ import annotations

#: Its name in the queue.
KEEPER = "sb-keeper"

#: Seconds between looks at the lease.
LOOK_S = 5

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
if not os.path.exists("lease.json"):
    with open("lease.first", "w") as file:
        json.dump({"until": time.time() + %(lease_s)g}, file)
    os.rename("lease.first", "lease.json")
while True:
    with open("lease.json") as file:
        if time.time() >= json.load(file)["until"]:
            break
    time.sleep(%(look_s)d)
'"""


def keeper(lease_s: float) -> str:
    """The script, for a machine that nobody has renewed yet."""
    return _SCRIPT % {"lease_s": lease_s, "look_s": LOOK_S}
