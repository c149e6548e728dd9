"""A command's options as one typed object instead of a parameter list.

The options of a command are the fields of a dataclass, annotated as Typer wants parameters annotated. A field
whose type is itself a dataclass stands for that dataclass's fields, in its place, so that groups of options
are objects of their own. `command` gives a function of one such object the flat signature that Typer reads;
`--help` lists the options in the order of the fields. A field of type `typer.Context` is no option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")


def command(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Decorator: make a function of one object of this dataclass a function that Typer can run."""

    def of(function: Callable[[Options], None]) -> Callable[..., None]:
        def call(**values: Any) -> None:
            function(_built(options, values))

        parameters = list(_parameters(options))
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        vars(call)["__signature__"] = Signature(parameters)
        return call

    return of


def typed(context: typer.Context) -> set[str]:
    """Names of a command's parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _parameters(options: type[Any]) -> Iterator[Parameter]:
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if is_dataclass(group := hints[field.name]):
            assert isinstance(group, type)
            yield from _parameters(group)
        else:
            default = Parameter.empty if field.default is MISSING else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])


def _built(options: type[Options], values: Mapping[str, Any]) -> Options:
    hints = get_type_hints(options)
    return options(
        **{
            field.name: _built(hints[field.name], values)
            if is_dataclass(hints[field.name])
            else values[field.name]
            for field in fields(options)  # type: ignore[arg-type]
        }
    )
