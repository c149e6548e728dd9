"""What a user says on the command line about a job, beside what its text says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from translator.kinds.command_job import CommandJob
from translator.kinds.gpu_request import GpuRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values that replace those of a text; None and "" leave it as it is."""

    name: str = ""
    gpus: GpuRequest | None = None
    #: Kubernetes quantities.
    cpus: str = ""
    memory: str = ""
    image: str = ""
    tasks: int | None = None
    #: As the kind of the text writes arrays.
    array: str = ""
    time_limit_s: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: Values of annotations starburst.io/…
    hints: Mapping[str, str] = field(default_factory=dict)
    #: Arguments of a script.
    arguments: tuple[str, ...] = ()

    def applied(self, job: CommandJob) -> CommandJob:
        """The job with these values, but for its array, which each kind reads by itself."""
        gpus = GpuRequest(job.gpus, job.gpu_type) if self.gpus is None else self.gpus
        return replace(
            job,
            name=self.name or job.name,
            gpus=gpus.count,
            gpu_type=gpus.type,
            cpus=self.cpus or job.cpus,
            memory=self.memory or job.memory,
            image=self.image or job.image,
            tasks=self.tasks or job.tasks,
            time_limit_s=job.time_limit_s if self.time_limit_s is None else self.time_limit_s,
            env={**job.env, **self.env},
            hints={**job.hints, **self.hints},
        )


NONE = Overrides()
