"""Open runs are found by their machine, as if all runs were looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.clouds.sky.runs.open_runs import OpenRuns

MACHINES = ["i-1", "i-2", "i-3"]

ranks = st.builds(
    lambda where, over, port: RankEntry(where, {"env": {"MASTER_PORT": port}} if port else {}, over=over),
    st.sampled_from(MACHINES),
    st.booleans(),
    st.sampled_from(["", "20000", "20001", "none"]),
)


@given(st.lists(st.tuples(st.lists(ranks, max_size=3), st.booleans()), max_size=6))
def test_an_index_of_runs_says_what_a_look_at_all_of_them_says(
    made: list[tuple[list[RankEntry], bool]],
) -> None:
    index, left = OpenRuns(), []
    for number, (of_run, ends) in enumerate(made):
        entry = RunEntry(f"job-{number}", 1, of_run)
        index.add(entry)
        if not ends:
            left.append(entry)
            continue
        for rank in of_run:
            rank.spec = {}  # as the end of a run empties it
        index.drop(entry)
        index.drop(entry)
    for machine in MACHINES:
        here = [(entry, rank) for entry in left for rank in entry.ranks if rank.where == machine]
        alive = [(entry.job, id(rank)) for entry, rank in here if not rank.over]
        assert [(entry.job, id(rank)) for entry, rank in index.tasks_on(machine)] == alive
        assert index.has_any_on(machine) == bool(here)
    told = {rank.spec.get("env", {}).get("MASTER_PORT", "") for entry in left for rank in entry.ranks}
    assert set(index.ports) == {int(port) for port in told if port.isdecimal()}
