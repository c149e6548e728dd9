"""The SLURM_* variables of a batch job, as lines of sh; what is known at run time is filled in there."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from translator.kinds.sbatch.values import ArraySpan

_OF_RUN = """\
export SLURM_JOB_ID="$STARBURST_JOB" SLURM_JOBID="$STARBURST_JOB" SLURM_SUBMIT_DIR="$PWD"
SLURMD_NODENAME=$(hostname 2>/dev/null || echo "${STARBURST_NODE:-localhost}")
export SLURMD_NODENAME SLURM_JOB_NODELIST="$SLURMD_NODENAME" SLURM_NODELIST="$SLURMD_NODENAME"
[ "${STARBURST_ATTEMPT:-1}" = 1 ] || export SLURM_RESTART_COUNT="$((STARBURST_ATTEMPT - 1))"
"""
_OF_ARRAY = """\
export SLURM_ARRAY_JOB_ID="$STARBURST_ARRAY" SLURM_ARRAY_TASK_ID="$STARBURST_ARRAY_INDEX"
"""
#: The table of indices of an array that is no range: its place is shifted to the front.
_FROM_TABLE = """\
starburst_index() {{ shift "$STARBURST_ARRAY_INDEX"; echo "$1"; }}
SLURM_ARRAY_TASK_ID=$(starburst_index {indices})
"""


def environment(values: Mapping[str, object], array: ArraySpan | None) -> str:
    """Lines that export `values` (None is left out) and what the run and the array add to them."""
    fixed = {name: str(value) for name, value in values.items() if value is not None}
    if array is not None:
        first, last = array.indices[0], array.indices[-1]
        sizes = {"MIN": first, "MAX": last, "COUNT": len(array.indices), "STEP": array.step}
        fixed |= {f"SLURM_ARRAY_TASK_{name}": str(size) for name, size in sizes.items() if size is not None}
    lines = f"export {' '.join(f'{name}={quote(value)}' for name, value in fixed.items())}\n{_OF_RUN}"
    if array is None:
        return lines
    table = "" if array.is_range else _FROM_TABLE.format(indices=" ".join(map(str, array.indices)))
    return f"{lines}{_OF_ARRAY}{table}"
