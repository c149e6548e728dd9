"""The alternatives of a SkyPilot task (`any_of`, `ordered`) as one: those that a job can take any of.

A job names GPU types, places, and spot machines or others, and takes any of the types in any of the places.
Of the alternatives those are kept, from the first one on, that come to this; the others are left out with a
note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from starburst.domain.gpu_types import either, types_of
from translator.field import Field
from translator.kinds.gpu_request import GpuRequest

#: The place of an alternative that is the cluster itself.
HOME = "kubernetes"
ORDER = "the order is not kept: at home the first with room is taken, in the cloud the cheapest"
EITHER_PRICE = "spot machines and others will do; a translated task asks for others alone"


@dataclass(frozen=True, slots=True)
class SkyResources:
    """What one machine of a task needs, in the terms of a job."""

    gpus: GpuRequest
    cpus: str = ""
    memory: str = ""
    image: str = ""
    #: Places as starburst.io/infra has them, or `HOME`; () is any.
    places: tuple[str, ...] = ()
    #: Whether spot machines are asked for, or others; None is either.
    spot: bool | None = None
    #: Values of further annotations starburst.io/…
    hints: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> dict[str, Any]:
        """What is the same in all alternatives that are kept, by SkyPilot's names."""
        own = {"image_id": self.image, "cpus": self.cpus, "memory": self.memory}
        count = {"the number of GPUs": self.gpus.count}
        return {**count, **own, **{key.replace("-", "_"): value for key, value in self.hints.items()}}

    @property
    def machine_hints(self) -> dict[str, str]:
        """All annotations, with those of place and price."""
        rented = [place for place in self.places if place != HOME]
        found = dict(self.hints)
        if self.places and not rented:
            found["cloud"] = "never"
        if rented:
            found["infra"] = ",".join(rented)
        if self.spot is not None:
            found["use-spot"] = str(self.spot).lower()
        return found


#: A GPU type, a place, and whether it is a spot machine; "" and None are any.
_Cell = tuple[str, str, bool | None]


def joined(listed: Sequence[tuple[Field, SkyResources]]) -> SkyResources:
    """One for all alternatives, each with its place in the task; those that cannot join are noted."""
    (place, first), *others = listed
    kept = [first]
    waiting: list[tuple[Field, SkyResources]] = []
    for where, other in others:
        differing = _differing(first, other)
        if differing:
            where.note(f"is left out: {' and '.join(differing)} would differ from the first alternative's")
        else:
            waiting.append((where, other))
    if _is_product([first, *(other for _, other in waiting)]):
        kept += [other for _, other in waiting]
        waiting = []
    for where, other in waiting:
        if _is_product([*kept, other]):
            kept.append(other)
        else:
            where.note("is left out: a job takes any of its GPU types in any of its places, spot or not")
    found = _union(kept)
    if found.spot is None and any(each.spot for each in kept):
        place.note(EITHER_PRICE)
    return found


def _differing(first: SkyResources, other: SkyResources) -> list[str]:
    one, two = first.size, other.size
    return [key for key in dict.fromkeys((*one, *two)) if one.get(key) != two.get(key)]


def _is_product(options: Sequence[SkyResources]) -> bool:
    """Whether each type of any of them may be had in each place of any of them, at each kind of price."""
    rented = [each for each in options if each.places != (HOME,)]
    cells = {cell for each in rented for cell in _cells(each)}
    axes: list[set[Any]] = [set(axis) for axis in zip(*cells, strict=True)] or [set(), {""}, {None}]
    for each in options:
        if each.places == (HOME,):  # its place and price are those of no rented machine
            types = types_of(each.gpus.type) or ("",)
            axes[0] |= set(types)
            cells |= set(product(types, axes[1], axes[2]))
    return cells == set(product(*axes))


def _cells(each: SkyResources) -> Iterable[_Cell]:
    return product(types_of(each.gpus.type) or ("",), each.places or ("",), (each.spot,))


def _union(options: Sequence[SkyResources]) -> SkyResources:
    first = options[0]
    rented = [each for each in options if each.places != (HOME,)]
    spots = {each.spot for each in rented} or {None}
    named = [types_of(each.gpus.type) for each in options]
    anywhere = any(not each.places for each in options)
    return replace(
        first,
        gpus=replace(
            first.gpus, type=either(kind for kinds in named for kind in kinds) if all(named) else ""
        ),
        places=() if anywhere else tuple(dict.fromkeys(place for each in options for place in each.places)),
        spot=spots.pop() if len(spots) == 1 else None,
    )
