"""Core types to JSON text and back, exactly: infinities, tuples, enums and money survive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreConfig, SchemaSerializer, SchemaValidator, to_json
from pydantic_core.core_schema import no_info_after_validator_function, typed_dict_field, typed_dict_schema

from starburst.core.model.actions import Action
from starburst.core.model.events import Event, JobSubmitted, SiteSynced
from starburst.store.errors import StoreError

T = TypeVar("T")

EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
ACTIONS: dict[str, type[Action]] = {kind.__name__: kind for kind in get_args(Action)}


#: Infinity becomes the string "Infinity", which float fields decode again.
INFINITY = CoreConfig(ser_json_inf_nan="strings")


def encode(value: object) -> str:
    """The value as JSON text; the same value is the same text in each process."""
    if isinstance(value, SiteSynced):  # the one with sets, whose order is that of their hashes
        value = {"site": value.site, "known": sorted(value.known), "instances": sorted(value.instances)}
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
    return decode_all(kind, (text,))[0]


def decode_all(kind: type[T], texts: Iterable[str]) -> list[T]:
    """A value of each text; see `decode`."""
    read = _reader(kind).validate_json  # type: ignore[arg-type]
    try:
        return [read(text) for text in texts]
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
def _reader(kind: Any) -> SchemaValidator:
    return SchemaValidator(_made_by_python(_adapter(kind).core_schema))


def _made_by_python(schema: Any) -> Any:
    """A schema whose dataclasses are read as dictionaries of what is there, and made by their own `__init__`.

    Of a job's record most fields have their default: pydantic, which sets each of them itself, takes a third
    longer. In a union, which compares how well its members match, they stay as they are.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(map(_made_by_python, schema))
    if not isinstance(schema, dict) or schema.get("type") == "union":
        return schema
    parts = {key: _made_by_python(part) for key, part in schema.items()}
    if schema.get("type") != "dataclass":
        return parts
    fields = {}
    for field in parts["schema"]["fields"]:
        part = field["schema"]
        optional = part["type"] == "default"
        fields[field["name"]] = typed_dict_field(part["schema"] if optional else part, required=not optional)
    ref = {"ref": schema["ref"]} if "ref" in schema else {}
    return {**no_info_after_validator_function(_maker(schema["cls"]), typed_dict_schema(fields)), **ref}


def _maker(kind: type[T]) -> Callable[[dict[str, Any]], T]:
    def make(found: dict[str, Any]) -> T:
        return kind(**found)

    return make


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Built at first use, so that commands that read no records do not build adapters."""
    return TypeAdapter(kind)
