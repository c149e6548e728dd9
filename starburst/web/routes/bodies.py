"""Request bodies: manifests and lists of job names."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request

from starburst.app.reading.sources import ManifestText
from starburst.web.dependencies import submitter
from starburst.web.errors import HttpError

#: Content types of manifests. Browsers send them to other sites only after a CORS preflight, which fails
#: here.
JSON = "application/json"
YAML = ("application/yaml", "application/x-yaml", "text/yaml")
#: Fields of a form.
MOST_FIELDS = 20
#: Jobs and arrays per request.
MOST_NAMES = 1000
#: A surrogate without its pair.
_HALF = re.compile("[\ud800-\udfff]")
#: Name of a text without a file name, in errors.
NAME = "body"
MANIFEST: dict[str, Any] = {
    "type": "object",
    "description": "a Kubernetes Job, Pod, or List of them",
    "properties": {"kind": {"enum": ["Job", "Pod", "List"]}, "metadata": {"type": "object"}},
    "required": ["kind"],
}
FILES: dict[str, Any] = {
    "type": "object",
    "description": "texts of manifests, each with what errors shall call it",
    "properties": {
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
                "required": ["name", "text"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["files"],
    "additionalProperties": False,
}
#: Schema of a list of names.
NAMES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "minItems": 1, "maxItems": MOST_NAMES, "items": {"type": "string"}}
    },
    "required": ["names"],
    "additionalProperties": False,
}
#: Request bodies in OpenAPI.
NAMES_BODY = {"requestBody": {"required": True, "content": {JSON: {"schema": NAMES}}}}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            YAML[0]: {"schema": {"type": "string", "description": "YAML documents, each a manifest"}},
            JSON: {"schema": {"oneOf": [MANIFEST, {"type": "array", "items": MANIFEST}, FILES]}},
        },
    }
}


async def read_body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        HttpError: 413, it is larger than `http.max_body`.
    """
    most = request.app.state.services.settings.max_body
    parts, size = list[bytes](), 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            raise HttpError(413, f"the body has more than {most} bytes; send less, or raise http.max_body")
    return b"".join(parts)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; of several with one name the first.

    Raises:
        HttpError: 400 or 413, it has too many fields, or is larger than `http.max_body`.
    """
    body = (await read_body(request)).decode(errors="replace")
    try:
        found = parse_qs(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise HttpError(400, f"the form has more than {MOST_FIELDS} fields") from None
    return {name: values[0] for name, values in found.items()}


async def sources(request: Request, _: Annotated[object, Depends(submitter)]) -> list[ManifestText]:
    """The manifests of a request; they are read only after the principal is known to be a submitter.

    Raises:
        HttpError: 400 or 413, the type is wrong or the body is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in YAML:
        raise HttpError(400, f"content-type: {kind!r}: must be {YAML[0]} or {JSON}")
    body = await read_body(request)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise HttpError(400, f"{NAME}: is not text; send UTF-8") from None
    return [ManifestText(NAME, text)] if kind != JSON else _of_json(text)


async def names(request: Request, _: Annotated[object, Depends(submitter)]) -> list[str]:
    """The job names of a request.

    Raises:
        HttpError: 400 or 413, the shape is wrong or the body is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise HttpError(400, f"content-type: {kind!r}: must be {JSON}")
    value = _json(await read_body(request), 'send {"names": [...]}')
    found = value["names"] if isinstance(value, dict) and value.keys() == {"names"} else None
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_NAMES or not all(map(_is_name, found)):
        said = f"must have names, an array of 1 to {MOST_NAMES} texts, and nothing else"
        raise HttpError(400, f"{NAME}: {said}")
    return found


def _is_name(value: object) -> bool:
    """Whether the store can be asked for it: it takes neither NUL nor unpaired surrogates."""
    return isinstance(value, str) and "\0" not in value and not _HALF.search(value)


def _json(body: bytes | str, mend: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        broken = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
        said = f"is not JSON ({error})" if broken else "is too deep, or has too large numbers"
        raise HttpError(400, f"{NAME}: {said}; {mend}") from None


def _of_json(text: str) -> list[ManifestText]:
    value = _json(text, f"send a manifest, or YAML as {YAML[0]}")
    if isinstance(value, dict) and "files" in value:
        return [_file(entry) for entry in _list(value["files"])]
    manifests = value if isinstance(value, list) else [value]
    # JSON is YAML except for surrogate pairs such as \ud83d\ude80, which `ensure_ascii=False` writes as one
    # character.
    return [_source(NAME, "\n---\n".join(json.dumps(it, ensure_ascii=False) for it in manifests))]


def _source(name: str, text: str) -> ManifestText:
    if _HALF.search(name) or _HALF.search(text):
        raise HttpError(400, f"{NAME}: holds half a character, such as \\ud800; remove it")
    return ManifestText(name, text)


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or not value:
        raise HttpError(400, f"{NAME}: files: must be an array of at least one, each with name and text")
    return value


def _file(entry: object) -> ManifestText:
    if isinstance(entry, dict) and entry.keys() == {"name", "text"}:
        name, text = entry["name"], entry["text"]
        if isinstance(name, str) and isinstance(text, str):
            return _source(name, text)
    raise HttpError(400, f"{NAME}: files: each must have name and text, which are text, and nothing else")
