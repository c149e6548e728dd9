"""What tasks cannot connect to: metadata of the machine, and what listens on it.

The metadata service of a cloud gives the credentials of the machine's role to whoever asks from the machine.
Programs of its user (Ray's job API, SkyPilot's skylet) take orders from whoever connects on loopback. Tasks
may connect to each other, to themselves, and to everything outside. A task is known by the user id of its
account, or by the control group of its container.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from starburst.clouds.sky.agent.containers.group import ContainerGroup, groups_here, sockets
from starburst.clouds.sky.agent.task_account import FIRST_ID, LAST_ID

CHAIN = "STARBURST"
#: Seconds for the kernel's table.
TABLE_S = 5.0
#: Metadata services: of AWS (also for containers), Azure, GCP and others; of Alibaba; Azure's WireServer,
#: which has the settings of a machine's extensions; by IPv6 of AWS, GCP and Oracle.
METADATA = {
    "iptables": ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"),
    "ip6tables": ("fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
}
#: A name server may listen here, and a metadata service may be one.
DNS_PORT = 53
#: Ports in one rule at most, as iptables has it.
PORTS_A_RULE = 15
#: In the kernel's list of sockets: a socket that waits for connections.
_LISTENS = "0A"


def close(group: ContainerGroup | None = None) -> str:
    """As root, set the rules; why that is not possible, or "". May be repeated.

    They hold for tasks with accounts, and for the containers of a `group`, once it was named.
    """
    theirs = frozenset[str]().union(*map(sockets, groups_here()))
    ports = listening(theirs)
    matches = [["-m", "owner", "--uid-owner", f"{FIRST_ID}-{LAST_ID}"]]
    if group is not None:
        matches.append(["-m", "cgroup", *group.match])
    for program, addresses in METADATA.items():
        try:
            _set(program, rules(addresses, ports), matches)
        except FileNotFoundError:
            return f"{program} is not installed"
        except subprocess.SubprocessError as error:
            said = getattr(error, "stderr", None) or str(error)
            return f"{program}: {said.strip().splitlines()[-1] if said.strip() else 'failed'}"
    return ""


def rules(addresses: tuple[str, ...], ports: frozenset[int]) -> list[str]:
    """The chain: no metadata service among `addresses`, and none of these ports of this machine."""
    reject = "-j REJECT --reject-with tcp-reset"
    numbers = sorted(ports)
    groups = [numbers[at : at + PORTS_A_RULE] for at in range(0, len(numbers), PORTS_A_RULE)]
    lists = [",".join(map(str, group)) for group in groups]
    return [
        *(f"-A {CHAIN} -d {address} -p tcp ! --dport {DNS_PORT} {reject}" for address in addresses),
        *(f"-A {CHAIN} -o lo -p tcp -m multiport --dports {ports_} {reject}" for ports_ in lists),
    ]


def listening(theirs: Collection[str] = ()) -> frozenset[int]:
    """TCP ports on which programs wait for connections that are no tasks: none of the sockets is `theirs`."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                is_task = FIRST_ID <= int(words[7]) <= LAST_ID or f"socket:[{words[9]}]" in theirs
                if words[3] == _LISTENS and not is_task:
                    found.add(int(words[1].rpartition(":")[2], 16))
    return frozenset(found - {DNS_PORT})


def _set(program: str, chain: list[str], matches: list[list[str]]) -> None:
    """Replace the chain as a whole, and have what tasks send go through it first.

    Raises:
        FileNotFoundError, subprocess.SubprocessError: the table cannot be changed.
    """
    table = "\n".join(["*filter", f":{CHAIN} - [0:0]", *chain, "COMMIT", ""])
    _run([f"{program}-restore", "-w", f"{TABLE_S:g}", "-n"], table)
    for match in matches:
        entry = ["OUTPUT", *match, "-j", CHAIN]
        try:
            _run([program, "-w", f"{TABLE_S:g}", "-C", *entry])
        except subprocess.CalledProcessError:
            _run([program, "-w", f"{TABLE_S:g}", "-I", *entry])


def _run(argv: list[str], text: str = "") -> None:
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    subprocess.run(argv, input=text, capture_output=True, text=True, timeout=2 * TABLE_S, check=True, env=env)
