"""Immutable records that are cheap to build.

The constructor of a frozen dataclass assigns its fields through `object.__setattr__`, which takes three to
four times as long as a plain assignment. The scheduler builds dozens of small records per job, so its records
are frozen for the type checker only: an assignment to a field is an error of mypy, not of the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        """No effect at run time."""
        return lambda function: function


Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[Class]) -> type[Class]:
    """A dataclass with slots, equality and a hash by its fields, which mypy takes as frozen."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
