"""Core types to JSON text and back, exactly: infinities, tuples, enums and money survive."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreConfig, SchemaSerializer, to_json

from starburst.core.model.actions import Action
from starburst.core.model.events import Event, JobSubmitted, SiteSynced
from starburst.store.errors import StoreError

T = TypeVar("T")

EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
ACTIONS: dict[str, type[Action]] = {kind.__name__: kind for kind in get_args(Action)}


#: Infinity becomes the string "Infinity", which float fields decode again.
INFINITY = CoreConfig(ser_json_inf_nan="strings")


def encode(value: object) -> str:
    """The value as JSON text."""
    return to_json(value, inf_nan_mode="strings").decode()


def encode_brief(value: object) -> str:
    """As `encode`, without the fields that have their default: a third of the text of a job's record.

    The defaults are part of what is stored then: another one needs a migration.
    """
    kind: Any = type(value)
    return _brief(kind).to_json(value, exclude_defaults=True).decode()


def decode(kind: type[T], text: str) -> T:
    """A value of type `kind` from the text that `encode` returned.

    Raises:
        StoreError: the text is not a `kind`.
    """
    try:
        return _adapter(kind).validate_json(text)  # type: ignore[arg-type, no-any-return]
    except ValidationError as broken:
        first = broken.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        name = getattr(kind, "__name__", str(kind))
        raise StoreError(
            f"the store holds a {name} that this version cannot read: "
            f"{field}: {first['msg']}, not {first['input']!r}"
        ) from None


def event(kind: str, body: str) -> Event:
    """An event of the input log."""
    return decode(_named(EVENTS, "event", kind), body)


def action(kind: str, body: str) -> Action:
    """A stored action."""
    return decode(_named(ACTIONS, "action", kind), body)


def subject(thing: Event | Action) -> str:
    """The id of the job or instance, or the site, that an event or action is about; "" is none."""
    if isinstance(thing, JobSubmitted):
        return thing.job.id
    if isinstance(thing, SiteSynced):
        return thing.site.value
    return str(getattr(thing, "job_id", getattr(thing, "instance_id", "")))


def _named(kinds: dict[str, type[T]], what: str, name: str) -> type[T]:
    if name not in kinds:
        raise StoreError(f"the store holds an {what} {name!r}, which this version does not know")
    return kinds[name]


@cache
def _brief(kind: Any) -> SchemaSerializer:
    return SchemaSerializer(_with_infinity(_adapter(kind).core_schema), INFINITY)


def _with_infinity(schema: Any) -> Any:
    """A schema whose dataclasses write infinity as `encode` does; each has a configuration of its own."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_with_infinity, schema))
    if not isinstance(schema, dict):
        return schema
    parts = {key: _with_infinity(part) for key, part in schema.items()}
    if schema.get("type") == "dataclass":
        parts["config"] = INFINITY
    return parts


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Built at first use, so that commands that read no records do not build adapters."""
    return TypeAdapter(kind)
