"""The references of the HTTP API, from its OpenAPI description, and of the metrics, from a scrape."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docsite.markdown import cell, table
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.store.store import Store
from starburst.web.app import REFUSALS, make_app
from starburst.web.context import AppContext
from starburst.web.routes.metrics import StoreCollector

API_HEAD = """# HTTP API

Every route, from the OpenAPI description that `GET /openapi.json` of a running Starburst answers with. How to
use it, with examples: [Over HTTP](../http.md). Any route may also refuse a request, with one of these:

"""
METRICS_HEAD = """# Metrics

Every metric of `GET /metrics`. What they mean in detail: [Metrics](../metrics.md).

"""


@contextmanager
def empty_home() -> Iterator[AppContext]:
    """A home in which nothing has happened."""
    with tempfile.TemporaryDirectory() as root, Store.open(Path(root) / "starburst.db") as store:
        yield AppContext(Home(Path(root)), store)


def api_page(context: AppContext) -> str:
    """The reference of the API as Markdown."""
    described = make_app(context, HttpConfig()).openapi()
    refusals = ((str(code), cell(reason)) for code, reason in REFUSALS.items())
    lines = [API_HEAD, *table(("Status", ""), refusals)]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            lines += _route(method.upper(), path, operation)
    return "\n".join(lines)


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"## {method} {path}\n"
    yield f"{operation.get('description') or operation.get('summary', '')}\n"
    given = operation.get("parameters", [])
    yield from table(("Parameter", "In", "Type", ""), (_parameter(each) for each in given))
    if "requestBody" in operation:
        kinds = ", ".join(f"`{kind}`" for kind in operation["requestBody"].get("content", {}))
        yield f"Body: {kinds}\n"
    answers = [f"{code} {told['description']}" for code, told in operation["responses"].items() if code < "4"]
    yield f"Answer: {'; '.join(answers)}.\n"


def _parameter(given: dict[str, Any]) -> tuple[str, ...]:
    schema = given.get("schema", {})
    kinds = [each.get("type", "any") for each in schema.get("anyOf", [schema])]
    name = f"`{given['name']}`" + (", required" if given.get("required") else "")
    return name, given["in"], " or ".join(kinds), cell(given.get("description", ""))


def metrics_page(context: AppContext) -> str:
    """The reference of the metrics as Markdown."""
    rows = []
    for family in StoreCollector(context).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        rows.append((f"`{name}`", family.type, labels, cell(family.documentation)))
    return METRICS_HEAD + "\n".join(table(("Metric", "Type", "Labels", ""), sorted(rows)))
