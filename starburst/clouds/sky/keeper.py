"""The dead-man switch of a machine: a job of SkyPilot's queue that ends when our lease on the machine passes.

SkyPilot gives a machine back after minutes without a job in its queue (`autostop … down`). It counts only
jobs of its own queue, so the keeper stands there for whatever else works on the machine, as long as the
lease is renewed; that costs no SkyPilot call (setting `autostop` anew would not put it off: only a job, or
cancelling it first, does). Without renewals the runs end (their shims look at the same lease), then the
keeper, then the machine.

It comes by `sky exec` after the machine is up. As the `run` of the launch it would hold all its GPUs.
"""

from __future__ import annotations

#: Its name in the queue.
KEEPER = "sb-keeper"

#: Seconds between looks at the lease.
LOOK_S = 5

_SCRIPT = """mkdir -p ~/starburst && cd ~/starburst && exec python3 -u -c '
import json, os, time
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
