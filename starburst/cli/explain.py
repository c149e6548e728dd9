"""`starburst explain`: where a job stands and why, in one sentence."""

from __future__ import annotations

from typing import Annotated

import typer

from starburst.app.build import live_core
from starburst.cli.output import Format, OutputOption, print_data
from starburst.cli.session import note_if_down, open_store
from starburst.cli.times import iso, local_clock
from starburst.core.explain import Explanation, ended
from starburst.core.explain import explain as explain_record
from starburst.store import queries
from starburst.store.store import Store


def explain(
    job: Annotated[str, typer.Argument(help="Id, name or unique beginning of one.")],
    output: OutputOption = Format.TABLE,
) -> None:
    """Say where a job stands and why, in one sentence."""
    with open_store() as store:
        told = explanation(store, queries.job(store, job))
    if output.for_people:
        print(f"{told.job} {told.sentence}")
        note_if_down()
    elif output is Format.NAME:
        print(f"job/{told.job}")
    else:
        print_data({"id": told.job, **explanation_keys(told)}, output)


def explanation(store: Store, row: queries.JobRow) -> Explanation:
    """The live core's word on a job; the store's on one that the core has not met yet, or has forgotten."""
    if row.phase == queries.SUBMITTED:
        return Explanation(row.id, row.phase, "is stored and waits for the scheduler to take it up")
    core = live_core(store)
    clock = local_clock(core.now)
    record = core.jobs.get(row.id)
    if record is None:
        sentence = ended(row.phase, row.ended_at, row.message, row.cloud_micro_usd, clock)
        return Explanation(row.id, row.phase, sentence)
    return explain_record(core, record, clock)


def explanation_keys(told: Explanation) -> dict[str, object]:
    """An explanation as `-o json` shows it."""
    return {
        "phase": told.phase,
        "explanation": told.sentence,
        "leaves_at": iso(told.leaves_at),
        "position": told.position,
        "cloud_cost_usd": None if told.cloud_cost is None else float(told.cloud_cost.dollars),
        "offers": list(told.offers),
    }
