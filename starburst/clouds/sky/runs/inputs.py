"""What runs take along from the Kubernetes cluster: values of ConfigMaps and Secrets, and volumes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starburst.runs.ports import Run
from translator.carried import CloudStorage
from translator.tasks.runtime_values import ReferencedData

#: Reads what a manifest (JSON) refers to. Raises NotNowError, UnresolvedError.
ValueSource = Callable[[str], Awaitable[ReferencedData]]

#: Checks whether a run may have what it takes from the cluster. Raises UnresolvedError.
Admit = Callable[[Run], None]


def admit_all(_run: Run) -> None:
    """The check where there is no cluster whose access rights could be asked."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What runs may take along, and the check of it.

    Without a `source`, runs that take values from the cluster are refused. `stores` maps the cluster's
    volumes to buckets and volumes of the cloud; every machine mounts all of them.
    """

    source: ValueSource | None = None
    stores: Mapping[str, CloudStorage] = field(default_factory=dict)
    admit: Admit = admit_all
