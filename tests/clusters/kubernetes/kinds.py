"""A user's object of either kind, for tests that hold for Jobs and bare Pods alike."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.scene import a_job, a_pod
from tests.kube_unit.store import Object

KINDS = pytest.mark.parametrize("kind", ["Job", "Pod"])


def an_object(kind: str, *args: str) -> tuple[Object, Any]:
    """A user's Job or Pod, and its resource."""
    told = {"args": args} if args else {}
    return (a_job(**told), JOBS) if kind == "Job" else (a_pod("train", **told), PODS)  # type: ignore[arg-type]
