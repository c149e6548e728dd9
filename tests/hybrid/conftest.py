"""Both laboratories at once: kubelets that run pods, and SkyPilot in front of a fake EC2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.lab import kubelets
from tests.kube.live import Live, give_gpus, live
from tests.sky_lab.conftest import laboratory

__all__ = ["laboratory"]


@pytest.fixture
def hybrid(laboratory: None, tmp_path: Path) -> Iterator[Live]:
    """A Starburst home beside a cluster of two nodes with four GPUs each, nothing started yet."""
    tmp_path.chmod(0o755)
    with kubelets(2) as lab:
        give_gpus(lab, ["node0", "node1"], 4)
        with live(lab, tmp_path) as starburst:
            yield starburst
