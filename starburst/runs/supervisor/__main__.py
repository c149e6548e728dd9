"""Entry point on this machine: `python -I -S <this file> <rank directory>`.

In isolated mode neither the script's directory nor site-packages is on the path, so the directory that holds
the package is appended: after the standard library, which nothing beside the package can shadow then. Rented
machines have the same modules in the agent's archive (`clouds/sky/access/agent_archive.py`).
"""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from starburst.runs.supervisor.supervisor import supervise

if __name__ == "__main__":
    supervise(sys.argv[1])
