"""The formats of traces: what each is, where its files come from, and its choice by a file's content."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sim.errors import SimulationError
from sim.readers.files import open_text
from sim.readers.generator import generate
from sim.readers.neutral import read_neutral
from sim.readers.published.dlrm import read_dlrm
from sim.readers.published.genai import read_genai
from sim.readers.published.helios import read_acme, read_helios
from sim.readers.published.openb import read_openb
from sim.readers.published.pai import TASK_COLUMNS, read_pai_jobs, read_pai_tasks
from sim.readers.published.philly import read_philly
from sim.readers.published.sia import read_sia
from sim.readers.published.spot_gpu import read_spot_gpu
from sim.readers.published.swf import read_swf
from sim.trace import Trace

_PEEK = 65_536
#: A status of PAI's tasks, in a table that has no header.
_PAI_STATUS = {"Terminated", "Failed", "Running", "Waiting"}
_YAML = re.compile(r"\{|[A-Za-z_]\w*\s*:(\s|$)")
_NUMBERS = re.compile(r"[\d.+-]+(\s+[\d.+-]+)+\s*(;.*)?")
_COLUMNS = "job_id,arrival_h,duration_h,gpus"

Reader = Callable[[Path, "int | None"], tuple[Trace, list[str]]]


def _read_spec(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    with open_text(path) as text:
        content = text.read()
    return generate(content, str(path), limit)


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of trace files."""

    read: Reader
    #: What the files are, and where they are published; "" for our own formats.
    title: str
    source: str = ""
    #: Columns of a CSV that no earlier format has all of.
    columns: frozenset[str] = frozenset()
    #: The files' own jobs are not fitted to the simulated cluster.
    ours: bool = False


FORMATS: dict[str, TraceFormat] = {
    "helios": TraceFormat(
        read_helios,
        "Helios, SenseTime 2020 (SC'21): cluster_log.csv",
        "github.com/S-Lab-System-Group/HeliosData: data.zip",
        frozenset({"vc", "gpu_num", "submit_time"}),
    ),
    "acme": TraceFormat(
        read_acme,
        "Acme, Shanghai AI Lab 2023 (NSDI'24): trace_seren.csv, trace_kalos.csv",
        "github.com/InternLM/AcmeTrace: data/job_trace",
        frozenset({"gpu_num", "submit_time", "end_time"}),
    ),
    "openb": TraceFormat(
        read_openb,
        "Alibaba GPU cluster 2023 (ATC'23): openb_pod_list*.csv",
        "github.com/alibaba/clusterdata: cluster-trace-gpu-v2023/csv",
        frozenset({"cpu_milli", "num_gpu", "creation_time"}),
    ),
    "dlrm": TraceFormat(
        read_dlrm,
        "Alibaba disaggregated recommendation models 2025 (NSDI'25): disaggregated_DLRM_trace.csv",
        "github.com/alibaba/clusterdata: cluster-trace-gpu-v2025",
        frozenset({"instance_sn", "role", "gpu_request"}),
    ),
    "genai": TraceFormat(
        read_genai,
        "Alibaba image generation 2026: lora_request_trace.csv",
        "github.com/alibaba/clusterdata: cluster-trace-v2026-GenAI",
        frozenset({"gmt_create", "exec_time_seconds"}),
    ),
    "spot-gpu": TraceFormat(
        read_spot_gpu,
        "Alibaba spot GPUs 2026 (ASPLOS'26): job_info_df.csv",
        "github.com/alibaba/clusterdata: cluster-trace-v2026-spot-gpu",
        frozenset({"worker_num", "gpu_request", "submit_time"}),
    ),
    "pai": TraceFormat(
        read_pai_jobs,
        "Alibaba PAI 2020 (NSDI'22), excerpts: pai_job_no_estimate_100K.csv",
        "github.com/alibaba/clusterdata: cluster-trace-gpu-v2020/simulator/traces/pai",
        frozenset({"num_inst", "num_gpu", "submit_time"}),
    ),
    "pai-tasks": TraceFormat(
        read_pai_tasks,
        "Alibaba PAI 2020 (NSDI'22), whole: pai_task_table.csv",
        "github.com/alibaba/clusterdata: cluster-trace-gpu-v2020/data/download_data.sh",
        frozenset(TASK_COLUMNS),
    ),
    "sia": TraceFormat(
        read_sia,
        "Pollux (OSDI'21) and Sia (SOSP'23): workload-*.csv",
        "github.com/siasosp23/artifacts: sia-simulator/workloads; "
        "github.com/petuum/adaptdl, branch osdi21-artifact: benchmark/workloads",
        frozenset({"application", "num_replicas", "time"}),
    ),
    "philly": TraceFormat(
        read_philly,
        "Philly, Microsoft 2017 (ATC'19): cluster_job_log, a JSON list",
        "github.com/msr-fiddle/philly-traces: trace-data.tar.gz",
    ),
    "swf": TraceFormat(
        read_swf,
        "Standard Workload Format: logs of parallel machines",
        "www.cs.huji.ac.il/labs/parallel/workload: one *.swf.gz per log",
    ),
    "csv": TraceFormat(read_neutral, f"Starburst's CSV: {_COLUMNS}, …", ours=True),
    "spec": TraceFormat(_read_spec, "a generator's parameters, YAML or JSON", ours=True),
}

#: Tables published beside traces, by their columns.
_NO_JOBS = {
    frozenset({"sn", "cpu_milli", "model"}): "a list of nodes; give the list of pods, openb_pod_list*.csv",
    frozenset({"inst_id", "job_name"}): "a table of PAI without demands; give pai_task_table.csv",
    frozenset({"node_name", "gpu_model"}): "a list of nodes; give the list of jobs, job_info_df.csv",
}


@dataclass(frozen=True, slots=True)
class Read:
    """A trace, the name of its format, and notes on jobs that were left out or changed."""

    trace: Trace
    format: str
    notes: list[str] = field(default_factory=list)

    @property
    def published(self) -> bool:
        """Whether the file is somebody else's, made for no cluster that is simulated."""
        return not FORMATS[self.format].ours


def read(path: str | Path, fmt: str | None = None, *, limit: int | None = None) -> Read:
    """Read a trace from a file or from generator parameters given inline as `{…}`; the first `limit` jobs.

    `fmt` is one of FORMATS; None detects it from the file's content.

    Raises:
        SimulationError: with file, line and field of all that is wrong.
    """
    if fmt is not None and fmt not in FORMATS:
        raise SimulationError(f"{path}: format: {fmt}: must be one of {', '.join(FORMATS)}")
    if isinstance(path, str) and path.lstrip().startswith("{"):
        trace, notes = generate(path, "workload", limit)
        return Read(trace, "spec", notes)
    file = Path(path)
    name = fmt or _detect(file)
    trace, notes = FORMATS[name].read(file, limit)
    return Read(trace, name, notes)


def _detect(path: Path) -> str:
    with open_text(path, errors="replace") as text:
        start = text.read(_PEEK).lstrip()
    if not start:
        raise SimulationError(f"{path}: empty: give a file with jobs")
    first = start.splitlines()[0]
    if start[0] == "[":
        return "philly"
    if start[0] == ";" or _NUMBERS.fullmatch(first):
        return "swf"
    if _YAML.match(_first_of_yaml(start)):
        return "spec"
    return _by_header(path, [name.strip() for name in first.split(",")])


def _first_of_yaml(text: str) -> str:
    """The first line that is no comment and does not begin a document."""
    return next((line for line in text.splitlines() if line.strip() and line[0] not in "#-"), "")


def _by_header(path: Path, cells: list[str]) -> str:
    """The format of a CSV by its first line."""
    header = set(cells)
    for name, form in FORMATS.items():
        if form.columns and form.columns <= header:
            return name
    if len(cells) == len(TASK_COLUMNS) and cells[3] in _PAI_STATUS:
        return "pai-tasks"
    for columns, what in _NO_JOBS.items():
        if columns <= header and "job_id" not in header:
            raise SimulationError(f"{path}: {what}")
    if len(cells) > 1:
        return "csv"
    raise SimulationError(
        f"{path}: unknown format: the first line of a CSV names its columns, such as {_COLUMNS}; "
        "starburst traces lists the formats"
    )
