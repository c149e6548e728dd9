"""Promise: the compiled core gives what the core gives, bit for bit, and is made of the same sources."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from sim import run as runs
from sim.compiled import build
from sim.compiled.sources import is_compiled, native, reached
from sim.engines import compiled_engine, core_engine
from sim.errors import SimulationError
from sim.experiments.shared import gpu_jobs
from sim.run import estimates, run
from sim.spec import Spec
from sim.trace import Trace
from tests.sim.cases import assert_equal
from tests.sim.test_array_engine import PHILLY, philly

SMALL = Spec(nodes=3, gpus_per_node=4, out_of_order=True)
#: What takes other ways through the core.
SPECS: dict[str, dict[str, Any]] = {
    "no wait": {"waiting": "no-wait"},
    "as published": {"waiting": "compute", "factor": 0.3, "queue_cap": 5},
    "strict": {"out_of_order": False},
    "backfill": {"out_of_order": False, "backfill": True},
    "the published backfill": {"out_of_order": False, "backfill": True, "backfill_rule": "artifact"},
    "calibrated": {"budget_mode": "calibrated"},
    "calibrated, no estimates": {"budget_mode": "calibrated", "runtime_estimates": "none"},
    "users' own estimates": {"runtime_estimates": "given"},
    "time limits": {"runtime_estimates": "limits"},
    "no estimates": {"runtime_estimates": "none", "binpack": "best-fit"},
    "hopeless waits": {"hopeless": "leave", "estimate_error": 80.0},
    "home again": {"waiting": "star", "factor": 0.5, "t_max_h": 0.25, "cloud_delay_s": 90.0},
    "constant, learnt": {"waiting": "constant"},
    "for ever": {"waiting": "infinite", "order": "sjf", "binpack": "tetris"},
    "earliest due": {"order": "edf", "max_slowdown": 3.0, "max_wait_h": 2.0},
    "fair": {"order": "fair", "shares": (("a", 3.0),)},
    "priority": {"order": "priority", "binpack": "worst-fit", "no_short_jobs_h": 0.1, "cpu_offload": True},
    "bf-js": {"order": "bf-js"},
    "vqs": {"order": "vqs"},
    "vqs-bf": {"order": "vqs-bf"},
}


def drawn(seed: int, jobs: int = 300) -> Trace:
    """Gangs and single GPUs, jobs without GPUs among them, on a busy cluster."""
    draw: Generator = np.random.default_rng(seed)
    gpus = draw.choice([0, 1, 2, 4, 8], jobs, p=[0.1, 0.4, 0.2, 0.2, 0.1])
    arrival_h = np.round(np.cumsum(draw.exponential(0.15, jobs)), 2)  # some at the same time
    trace = gpu_jobs(arrival_h, np.round(draw.exponential(1.0, jobs), 2) + 0.01, gpus)
    queues = [str(name) for name in draw.choice(["a", "b"], jobs)]
    return replace(
        trace,
        queues=queues,
        cpus=draw.integers(1, 40, jobs).astype(float),
        priority=gpus % 3,
        users=[str(name) for name in draw.choice(["ann", "ben", ""], jobs)],
        estimate_h=trace.duration_h * draw.uniform(0.5, 12, jobs),
    )


def same(trace: Trace, spec: Spec, tree: Path) -> None:
    """Whether the copy gives exactly what the core gives."""
    guess_h = estimates(trace, spec)
    ours = compiled_engine.simulate(trace, guess_h, spec, tree)
    core = core_engine.simulate(trace, guess_h, spec)
    assert ours.stays == core.stays
    assert_equal(replace(ours, stays={}), replace(core, stays={}))


def test_records_become_plain_dataclasses_with_constructors() -> None:
    source = '''"""Text."""

from __future__ import annotations


class WrongError(ValueError):
    pass


class _Kept:
    __slots__ = ("half",)
    half: float


@dataclass(slots=True)
class Job(_Kept):
    id: str
    tags: dict[str, int] = field(default_factory=dict)
    #: Hours.
    size: float = 1.0

    def __post_init__(self) -> None:
        self.half = self.size / 2


@value
class Slot:
    node: int


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""
'''
    made = native(source)
    names: dict[str, Any] = {}
    exec(f"from dataclasses import field\n{made.replace('from __future__ import annotations', '')}", names)
    assert "slots=True" not in made
    assert "__slots__" not in made
    assert "@mypyc_attr(native_class=False)\nclass WrongError" in made
    job = names["Job"]("a", size=3.0)
    assert (job.id, job.tags, job.size, job.half) == ("a", {}, 3.0, 1.5)
    assert job == names["Job"]("a", {}, 3.0)
    assert job.tags is not names["Job"]("b").tags
    assert hash(names["Slot"](1)) == hash(names["Slot"](1))
    assert names["Empty"]() == names["Empty"]()
    assert native("x = 1\n") == "x = 1\n"


def test_what_is_compiled_is_all_that_a_simulation_runs_of_the_core() -> None:
    files = reached(build.ROOT)
    compiled = {*filter(is_compiled, files)}
    assert {"starburst/core/scheduler.py", "starburst/policy/waiting.py", "sim/world.py"} <= compiled
    interpreted = {*files} - compiled
    assert {"sim/spec.py", "starburst/__init__.py", "starburst/domain/value.py"} <= interpreted
    packages = {"/".join(name.split("/")[:2]) for name in files if name.count("/") > 1}
    assert packages == {
        "sim/compiled",
        "sim/engines",
        "starburst/core",
        "starburst/domain",
        "starburst/policy",
    }
    assert not any("/packing/" in name for name in compiled)


def test_the_copy_gives_the_same_before_it_is_compiled(tmp_path: Path) -> None:
    files = build.copy(tmp_path)
    assert files == [*filter(is_compiled, reached(tmp_path))] == [*filter(is_compiled, reached(build.ROOT))]
    for changes in (SPECS["as published"], SPECS["calibrated"], SPECS["home again"]):
        same(drawn(1, 120), replace(SMALL, **changes), tmp_path)


def test_it_is_taken_where_it_is_ready_and_the_trace_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.copy(tmp_path)
    monkeypatch.setattr(compiled_engine, "FEWEST_JOBS", 100)
    monkeypatch.setattr(build, "ready", lambda: tmp_path)
    monkeypatch.setattr(build, "made", lambda: tmp_path)
    calibrated = replace(SMALL, budget_mode="calibrated")
    done = run(drawn(2, 100), calibrated)
    assert done.engine == "compiled"
    assert done.cpu_seconds > 0
    assert run(drawn(2, 99), calibrated).engine == "core", "it would take longer to start"
    assert run(drawn(2, 100), replace(SMALL, waiting="no-wait"), "core").engine == "core"
    monkeypatch.setattr(build, "ready", lambda: None)
    assert run(drawn(2, 100), calibrated).engine == "core"
    assert run(drawn(2, 99), calibrated, "compiled").engine == "compiled"


def test_without_mypyc_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise build.PackageNotFoundError(name)

    monkeypatch.setattr(build, "version", missing)
    assert build.ready() is None
    with pytest.raises(SimulationError) as caught:
        runs.run(drawn(3, 50), SMALL, "compiled")
    assert str(caught.value) == (
        "--engine: compiled: needs mypyc: pip install starburst-hybrid[compiled]; choose core"
    )


def test_without_a_home_to_keep_it_in_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(build.Path, "home", homeless)
    assert build.ready() is None, "an engine that nobody named is not missed"
    with pytest.raises(SimulationError) as caught:
        build.made()
    assert str(caught.value) == (
        "--engine: compiled: there is no home to keep it in; set XDG_CACHE_HOME, or choose core"
    )


def test_what_cannot_be_compiled_or_kept_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_args: object, **_options: object) -> Any:
        return subprocess.CompletedProcess([], 1, "a\nerror: command 'gcc' failed: No such file\n")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build.subprocess, "run", failed)
    (tmp_path / "starburst" / "making-abc" / "tree").mkdir(parents=True)  # by a process that was killed
    said = (
        "--engine: compiled: cannot be compiled here: error: command 'gcc' failed: No such file; choose core"
    )
    with pytest.raises(SimulationError) as caught:
        build.made()
    assert str(caught.value) == said
    assert [file.suffix for file in (tmp_path / "starburst").iterdir()] == [".lock"], "nothing half made"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no")
    with pytest.raises(SimulationError, match=r"^--engine: compiled: /proc/no/.*; choose core$"):
        build.made()


def test_a_process_that_the_system_kills_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_engine, "PROGRAM", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(SimulationError, match="a process of the simulation was killed"):
        compiled_engine.simulate(drawn(4, 20), np.ones(20), SMALL, tmp_path)


@pytest.fixture(scope="session")
def compiled() -> Path:
    """The compiled copy; it takes four minutes to make."""
    return build.made()


@pytest.mark.compiled
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SPECS)
def test_compiled_it_gives_the_same_under_every_policy(compiled: Path, name: str) -> None:
    for seed in range(3):
        same(drawn(seed), replace(SMALL, **SPECS[name]), compiled)


@pytest.mark.compiled
@pytest.mark.timeout(1800)
def test_compiled_it_gives_what_was_published_of_philly(compiled: Path) -> None:
    if not PHILLY.is_file():
        pytest.skip("no shared cases: the trace of Philly is not here")
    trace = philly()
    spec = Spec(waiting="compute", factor=0.076, out_of_order=True, queue_cap=30, warmup=5000)
    done = run(trace, spec, "compiled")
    assert f"{done.result.cloud_cost:.3f}" == "118307.077"
    same(trace, spec, compiled)
    assert json.loads(json.dumps(done.as_dict(spec)))["engine"] == "compiled"
