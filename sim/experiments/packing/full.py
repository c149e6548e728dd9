"""Tables 13 and 14 of Eva (EuroSys'25): whole traces, and the first 200 jobs beside the artifact."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.experiments.packing.eva_files import (
    NAMES,
    PackedPoint,
    at_hand,
    beside,
    eva_trace,
    measure,
    two_at_a_time,
    write_wrapped,
)
from sim.experiments.shared import RESULTS, table
from sim.packing.results import PackedResult

COMMAND = "python -m sim.experiments.packing.full"
SAVED = RESULTS / "packing-end-to-end.json"
#: What is compared besides dollars.
COMPARED = ("of No-Packing", "JCT, h", "tasks per machine", "pace", "idle, h", "moves")
PACKERS = ("none", "stratus", "synergy", "owl", "eva", "optimal")


@dataclass(frozen=True, slots=True)
class Published:
    """A row of a table; what it does not give is None."""

    cost: float | None = None
    tasks: float | None = None
    jct_h: float | None = None
    pace: float | None = None
    idle_h: float | None = None
    moves: int | None = None


NOTHING = Published()


@dataclass(frozen=True, slots=True)
class Whole:
    """A trace, and what is published of it."""

    title: str
    note: str
    source: str
    published: Mapping[str, Published]


WHOLE = {
    "200": Whole(
        "The first 200 jobs, beside the artifact",
        "The published artifact itself was run on this trace; these are its figures.",
        "artifact",
        {
            "none": Published(20_736.38, 0.99, 17.67, moves=0),
            "stratus": Published(17_813.75, 2.10, 19.32, moves=24),
            "synergy": Published(21_248.67, 1.77, 18.94, moves=0),
            "owl": Published(17_716.64, 1.47, 18.18, moves=245),
            "eva": Published(15_236.13, 1.82, 19.69, moves=803),
        },
    ),
    "full_alibaba": Whole(
        "Table 13: 6,274 jobs, durations as in Alibaba's trace",
        "The trace at hand is the artifact's, on which a machine for each task costs $442,334 in the "
        "artifact "
        "too; the paper's $480,130 is of another. So compare percentages.",
        "published",
        {
            "none": Published(480_130, 0.99, 9.18, 1.0, 0.10),
            "stratus": Published(344_171, 1.60, 9.71, 0.94, 0.05),
            "synergy": Published(368_033, 1.72, 9.68, 0.93, 0.05),
            "owl": Published(376_678, 1.81, 9.84, 0.96, 0.16),
            "eva": Published(289_908, 2.05, 10.55, 0.91, 0.11),
        },
    ),
    "full_gavel": Whole(
        "Table 14: 6,274 jobs, durations as in Gavel",
        "The paper's No-Packing comes out to the dollar on this trace.",
        "published",
        {
            "none": Published(831_227, 1.0, 16.81, 1.0, 0.10),
            "stratus": Published(560_067, 2.28, 18.89, 0.90, 0.05),
            "synergy": Published(556_901, 2.26, 19.03, 0.89, 0.06),
            "owl": Published(629_673, 1.84, 18.05, 0.94, 0.19),
            "eva": Published(483_472, 2.59, 19.42, 0.89, 0.17),
        },
    ),
}

Row = dict[str, Any]
Rows = dict[str, dict[str, Row]]


def saved_rows(file: Path = SAVED) -> Rows:
    """Trace → packer → figures, of all that was run."""
    found: Rows = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def keep(trace: str, name: str, result: PackedResult, file: Path = SAVED) -> None:
    """Put a row in place of the last one of its name."""
    rows = saved_rows(file)
    rows.setdefault(trace, {})[name] = result.as_dict()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def part(trace: str, rows: Mapping[str, Row]) -> list[str]:
    """Heading and table of a trace, as far as it was run."""
    whole = WHOLE[trace]
    head = (
        "scheduler",
        f"cost, {whole.source}",
        "ours",
        *(f"{name}: {whole.source} · ours" for name in COMPARED),
    )
    lines = [_line(whole, name, rows) for name in PACKERS if name in rows]
    return [f"## {whole.title}", whole.note, table(head, lines), *_reading(whole, rows)]


def _line(whole: Whole, name: str, rows: Mapping[str, Row]) -> tuple[str, ...]:
    row, theirs, base = rows[name], whole.published.get(name, NOTHING), rows.get("none")
    return (
        NAMES[name],
        _or_dash(theirs.cost, "${:,.0f}"),
        f"**${row['cost']:,.0f}**",
        _pair(share(whole, name), row["cost"] / base["cost"] if base else None, "{:.1%}"),
        _pair(theirs.jct_h, row["mean_jct_h"], "{:.2f}"),
        _pair(theirs.tasks, row["tasks_per_instance"], "{:.2f}"),
        _pair(theirs.pace, row["mean_throughput"], "{:.2f}"),
        _pair(theirs.idle_h, row["mean_idle_h"], "{:.2f}"),
        _pair(theirs.moves, row["migrations"], "{:,}"),
    )


def _pair(theirs: float | None, ours: float | None, form: str) -> str:
    return f"{_or_dash(theirs, form)} · **{_or_dash(ours, form)}**"


def share(whole: Whole, name: str) -> float | None:
    """A published cost over No-Packing's."""
    cost, alone = (whole.published.get(n, NOTHING).cost for n in (name, "none"))
    return None if cost is None or alone is None else cost / alone


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _reading(whole: Whole, rows: Mapping[str, Row]) -> Iterator[str]:
    """What the figures say of Eva and `optimal`, if both were run."""
    if not {"none", "eva", "optimal"} <= rows.keys():
        return
    eva, best, none = (rows[name] for name in ("eva", "optimal", "none"))
    theirs = share(whole, "eva") or 0.0
    bound = f"; for the tasks it had, no plans could cost less than ${best['bound'] or 0:,.0f}"
    yield (
        f"Our Eva costs {eva['cost'] / none['cost']:.1%} of No-Packing, theirs {theirs:.1%}. `optimal` costs "
        f"{beside(best['cost'], eva['cost'])} than our Eva, with {best['migrations']:,} moves against "
        f"{eva['migrations']:,} and a mean JCT "
        f"{beside(best['mean_jct_h'], eva['mean_jct_h'])}{bound if best['bound'] else ''}. Packing "
        f"took {eva['packer_cpu_seconds']:.0f} and {best['packer_cpu_seconds']:.0f} CPU seconds."
    )


def write() -> None:
    """Write the page from the rows that were run."""
    rows = saved_rows()
    parts = [text for trace in WHOLE if trace in rows for text in part(trace, rows[trace])]
    write_wrapped("packing-end-to-end", [INTRODUCTION, *parts])


def main() -> None:
    """Run what is asked for, two at a time; write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", choices=WHOLE, action="append", help="only this; may be repeated")
    parser.add_argument("--packer", choices=NAMES, action="append", help="only this; may be repeated")
    parser.add_argument("--jobs", type=int, help="only the first jobs, keeping and writing nothing")
    parser.add_argument("--page", action="store_true", help="run nothing: write the page from what was kept")
    args = parser.parse_args()
    asked = [
        (trace, name) for trace in args.trace or WHOLE for name in args.packer or PACKERS if not args.page
    ]
    if not at_hand():
        return
    points = [PackedPoint(name, eva_trace, (trace, args.jobs)) for trace, name in asked]
    for (trace, name), result in zip(asked, two_at_a_time(measure, points), strict=True):
        if args.jobs is None:
            keep(trace, name, result)
    if args.jobs is None:
        write()


INTRODUCTION = f"""# Eva end to end (tables 13 and 14)

`{COMMAND}`: the simulations of Eva (EuroSys'25, section 6.3) and of its artifact, ours beside; vCPUs, a plan
every 300 s. A row alone is run anew by `--trace full_gavel --packer eva`; `--page` only writes this
page, from
`packing-end-to-end.json`. `optimal` is our own packer. "Idle" is the time of a job in which its tasks
were not
all active, "pace" its mean throughput while they were."""


if __name__ == "__main__":
    main()
