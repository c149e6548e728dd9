"""What requests about jobs are answered with, in every output format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starburst.cli.output import Format, print_data, say


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """What becomes of one job or CronJob. `phase` is the job's before the request; None of a CronJob."""

    name: str
    message: str
    phase: str | None = None
    kind: str = "job"

    def as_dict(self) -> dict[str, object]:
        """Stable keys, as in `-o json`."""
        return {"kind": self.kind, "id": self.name, "phase": self.phase, "message": self.message}


def tell(answers: Sequence[RequestAnswer], how: Format) -> None:
    """Print the answers: for people a line each."""
    if how.for_people or how is Format.NAME:
        for answer in answers:
            name = f"{answer.kind}/{answer.name}"
            say(f"{name} {answer.message}" if how.for_people else name)
    else:
        print_data([answer.as_dict() for answer in answers], how)
