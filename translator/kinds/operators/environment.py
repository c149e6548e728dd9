"""The variables that operators give the tasks of a gang, as lines of sh; `$starburst_rank` is a task's rank.

Addresses come from the gang: MASTER_ADDR and MASTER_PORT, where its first task is, and SKYPILOT_NODE_IPS, the
addresses of all. Where all tasks share a machine they share an address, so each has a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from shlex import quote

from translator.field import Field
from translator.kinds.gangs.addresses import ALL_ADDRESSES
from translator.kinds.operators.roles import own_text

#: A gang without an address for its first task must not wait for it until its time is over.
_NO_ADDRESS = "starburst: no address of the first task is known here: MASTER_ADDR is not set"
_HOSTS = own_text(ALL_ADDRESSES)
#: What torchrun takes for the processes of a node.
_PROCESSES = re.compile(r"[1-9][0-9]{0,3}|auto|cpu|gpu|xpu")


def processes_per_node(*fields: Field) -> str:
    """The processes of each node, as torchrun takes them: those of the first field that says them."""
    for field in fields:
        if field.value in (None, ""):
            continue
        if isinstance(field.value, int | str) and _PROCESSES.fullmatch(str(field.value)):
            return str(field.value)
        field.refuse("must be a number of processes, or auto, cpu or gpu")
    return "auto"


def master_lines(size: int, port: int) -> str:
    """MASTER_ADDR and MASTER_PORT, exported."""
    if size == 1:
        return f'export MASTER_ADDR="${{MASTER_ADDR:-localhost}}" MASTER_PORT="${{MASTER_PORT:-{port}}}"\n'
    return (
        f'[ -n "${{MASTER_ADDR:-}}" ] || {{ echo {quote(_NO_ADDRESS)} >&2; exit 127; }}\n'
        f'export MASTER_ADDR="$MASTER_ADDR" MASTER_PORT="${{MASTER_PORT:-{port}}}"\n'
    )


def pytorch_lines(size: int, processes: str, rendezvous: Mapping[str, str]) -> str:
    """What the training operator gives a PyTorchJob, for torchrun too (PET_…).

    An elastic one may have fewer tasks than `size` when it runs.
    """
    per_node = int(processes) if processes[0].isdigit() else 1
    given = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": processes, **rendezvous}
    lines = master_lines(size, 23_456)
    lines += f'export PET_NNODES="${{STARBURST_WORLD_SIZE:-{size}}}"\n'
    lines += own_text(f"export WORLD_SIZE=$((PET_NNODES * {per_node}))\n")
    lines += "".join(f"export {name}={quote(value)}\n" for name, value in given.items())
    lines += 'export RANK="$starburst_rank" PET_NODE_RANK="$starburst_rank"\n'
    if "PET_RDZV_ENDPOINT" in rendezvous:
        return lines
    if rendezvous:
        return lines + 'export PET_RDZV_ENDPOINT="$MASTER_ADDR:$MASTER_PORT"\n'
    return lines + 'export PET_MASTER_ADDR="$MASTER_ADDR" PET_MASTER_PORT="$MASTER_PORT"\n'


def xgboost_lines(size: int) -> str:
    """What the training operator gives an XGBoostJob."""
    lines = f'{master_lines(size, 9999)}export WORLD_SIZE={size} RANK="$starburst_rank" PYTHONUNBUFFERED=1\n'
    return (
        lines + address_lines(size) + 'export WORKER_PORT="$MASTER_PORT" WORKER_ADDRS="$starburst_others"\n'
    )


def address_lines(size: int) -> str:
    """`starburst_hosts`, the addresses of all tasks with a port each, and `starburst_others`, those of all
    but the first without one; both have commas between them.
    """
    if size == 1:
        return 'starburst_hosts="localhost:${MASTER_PORT:-2222}" starburst_others=""\n'
    return _HOSTS + own_text(
        'starburst_hosts="" starburst_others="" starburst_port="$MASTER_PORT"\n'
        "for starburst_host in $SKYPILOT_NODE_IPS; do\n"
        '  starburst_others="${starburst_others:+$starburst_others,}${starburst_hosts:+$starburst_host}"\n'
        '  starburst_hosts="${starburst_hosts:+$starburst_hosts,}$starburst_host:$starburst_port"\n'
        "  starburst_port=$((starburst_port + 1))\n"
        "done\n"
    )


def host_lines(ranks: Sequence[int], size: int) -> str:
    """`starburst_host_RANK`, the addresses of some tasks."""
    lines = 'starburst_host_0="$MASTER_ADDR"\n'
    if size == 1 or max(ranks) == 0:
        return lines
    return (
        lines
        + _HOSTS
        + "".join(
            f'starburst_host_{rank}=`echo "$SKYPILOT_NODE_IPS" | sed -n {rank + 1}p`\n'
            for rank in ranks
            if rank
        )
    )


def name_lines(ranks: Collection[int], size: int, port: int = 29_500) -> str:
    """`starburst_host_RANK` of the tasks whose names stand in words, and MASTER_ADDR; "" if none do."""
    return master_lines(size, port) + host_lines(sorted(ranks), size) if ranks else ""


def volcano_lines(replicas: Mapping[str, int], files: Collection[str] = ()) -> str:
    """VC_TASK_HOSTS and VC_TASK_NUM of each task by its name, as Volcano's plugin svc gives them.

    `files`: the tasks whose addresses are wanted in `$starburst_hosts/TASK.host`, a line each.
    """
    size, first = sum(replicas.values()), 1
    lines = _HOSTS if size > 1 else ""
    if files:
        lines += "starburst_hosts=`mktemp -d` || exit 127\n"
    for name, count in replicas.items():
        word = name.upper().replace("-", "_")
        chosen = f'echo "${{SKYPILOT_NODE_IPS:-localhost}}" | sed -n {first},{first + count - 1}p'
        if count:
            lines += f"export VC_{word}_HOSTS=`{chosen} | paste -sd , -` VC_{word}_NUM={count}\n"
        if name in files:
            lines += f'{chosen if count else ":"} >"$starburst_hosts/{name}.host"\n'
        first += count
    return lines


def tf_cluster_lines(replicas: Mapping[str, int]) -> str:
    """`starburst_cluster`: the part `cluster` of TF_CONFIG, for the tasks of each role by its name."""
    size, first = sum(replicas.values()), 1
    lines, parts = master_lines(size, 2222) + address_lines(size), []
    for role, count in replicas.items():
        if count:
            fields = f"{first}-{first + count - 1}"
            chosen = f'echo "$starburst_hosts" | cut -d, -f{fields} | sed \'s/,/","/g\''
            lines += f"starburst_{role}=`{chosen}`\n"
            parts.append(f'"{role}":["\'"$starburst_{role}"\'"]')
        first += count
    return f"{lines}starburst_cluster='{{{','.join(parts)}}}'\n"


def tf_task_lines(role: str) -> str:
    """TF_CONFIG of the tasks of a role."""
    task = f'"task":{{"type":"{role}","index":\'"$starburst_index"\'}}'
    return f'export TF_CONFIG=\'{{"cluster":\'"$starburst_cluster"\',{task},"environment":"cloud"}}\'\n'
