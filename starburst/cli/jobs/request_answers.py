"""What requests about jobs are answered with, in every output format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starburst.cli.jobs.folding import array_title
from starburst.cli.output import Format, print_data, say


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """What becomes of one job or CronJob.

    `phase` is the job's before the request; None of a CronJob. `array` is the id of the job's array, if any.
    """

    name: str
    message: str
    phase: str | None = None
    kind: str = "job"
    array: str = ""

    def as_dict(self) -> dict[str, object]:
        """Stable keys, as in `-o json`."""
        return {"kind": self.kind, "id": self.name, "phase": self.phase, "message": self.message}


def tell(answers: Sequence[RequestAnswer], how: Format) -> None:
    """Print the answers: for people a line each, and one for the jobs of an array with the same answer."""
    if how is Format.NAME:
        for answer in answers:
            say(f"{answer.kind}/{answer.name}")
    elif how.for_people:
        for line in _lines(answers):
            say(line)
    else:
        print_data([answer.as_dict() for answer in answers], how)


def _lines(answers: Sequence[RequestAnswer]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[RequestAnswer]] = {}
    for answer in answers:
        whole = f"{answer.kind}/{answer.array or answer.name}"
        groups.setdefault((whole, answer.message), []).append(answer)
    for (_, message), alike in groups.items():
        if alike[0].array and len(alike) > 1:
            title = array_title([answer.name for answer in alike])
            yield f"{alike[0].kind}/{title} {message} ({len(alike):,} jobs)"
        else:
            yield from (f"{answer.kind}/{answer.name} {message}" for answer in alike)
