"""The embedded cluster: nodes that are names, and runs that are processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from starburst.core.model.events import Event, NodesChanged
from starburst.core.state import Changes
from starburst.domain.job import Site, Submission
from starburst.domain.node import Node
from starburst.runs.accounts import RunAs
from starburst.runs.ports import Report, Run
from starburst.runs.processes import SELF, ProcessRunner, RunHost
from starburst.runs.supervisor.log_pump import MAX_LOG


class LocalCluster:
    """A `Cluster` whose nodes share this machine. Their capacity is what they are said to have.

    `scheduler_time` as `ProcessRunner` has it.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        root: Path,
        checkpoints: Path,
        *,
        run_as: RunAs = SELF,
        max_log: int = MAX_LOG,
        scheduler_time: Callable[[float], float] = float,
    ) -> None:
        self._nodes = nodes
        self._places = {node.name: RunHost(node.capacity.gpus) for node in nodes}
        self._runner = ProcessRunner(
            root, checkpoints, Site.CLUSTER, run_as=run_as, max_log=max_log, scheduler_time=scheduler_time
        )

    async def start(self, run: Run) -> None:
        """See `RunSite`."""
        self._runner.start(run, self._places)

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
        """See `RunSite`."""
        self._runner.stop(job_id, attempt, grace_s)

    async def watch(self, report: Report) -> None:
        """See `RunSite`."""
        report(NodesChanged(self._nodes))
        await self._runner.watch(report)

    def newest(self, job_id: str) -> int:
        """See `RunSite`."""
        return self._runner.newest(job_id)

    def nudge(self) -> None:
        """See `RunSite`."""
        self._runner.nudge()

    def judged(self, submissions: Mapping[str, Submission]) -> Sequence[Event]:
        """Every node has every volume."""
        return ()

    def told(self, changes: Changes) -> None:
        """Users of this cluster look at Starburst itself."""
