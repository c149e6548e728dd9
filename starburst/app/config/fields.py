"""Types of fields in starburst.yaml, with validation and JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from starburst.policy.ordering import ORDERS
from starburst.policy.packing.registry import PACKERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import WAITING
from translator.duration import seconds
from translator.field import did_you_mean
from translator.manifests.pod_security import LEVELS
from translator.object_names import DNS_LABEL, DNS_SUBDOMAIN

#: Ten years: a longer duration is taken for a typing error.
MOST_SECONDS = 3650 * 86_400.0
MOST = 1_000_000


def _text(duration_s: float) -> str:
    """Seconds as the file writes them."""
    return f"{duration_s:.3f}".rstrip("0").rstrip(".") + "s"


def _duration(least_s: float = 0.0) -> BeforeValidator:
    def check(value: object) -> float:
        found_s = seconds(value if isinstance(value, str | int | float) else "")
        if not least_s <= found_s <= MOST_SECONDS:
            raise ValueError(f"must be at least {_text(least_s)} and at most {MOST_SECONDS / 86_400:.0f}d")
        return found_s

    return BeforeValidator(check)


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(did_you_mean(value, known, f"choose one of {', '.join(known)}"))
        return value

    return check


def _namespace(value: str) -> str:
    if not DNS_LABEL.fullmatch(value):
        raise ValueError("must be lower-case letters, digits and dashes, the ends no dashes, 63 at most")
    return value


def _object_name(value: str) -> str:
    if not DNS_SUBDOMAIN.fullmatch(value):
        raise ValueError(
            "must be lower-case letters, digits, dashes and dots, with a letter or digit at each end"
        )
    return value


def is_web_address(text: str) -> bool:
    """Whether a text is a URL of http or https with a host, and a port that can be."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port or address
        return False


def file_path(value: str) -> str:
    try:
        return str(Path(value).expanduser().absolute())
    except RuntimeError:
        raise ValueError("no home directory is known for this user; write the whole path") from None


#: Volume kinds for checkpoints, with their required fields.
VOLUMES = {"hostPath": ("path",), "persistentVolumeClaim": ("claimName",), "nfs": ("server", "path")}


def volume_source(value: dict[str, Any]) -> dict[str, Any]:
    (kind, source), *more = [*value.items(), (None, None)]
    if kind not in VOLUMES or len(more) > 1:
        raise ValueError(f"must be one of {', '.join(VOLUMES)}, such as {{hostPath: {{path: /data/ckpt}}}}")
    for field in VOLUMES[kind]:
        if not isinstance(source, dict) or not isinstance(source.get(field), str) or not source[field]:
            raise ValueError(f"{kind} needs {field}, which is text")
    return value


_AsText = PlainSerializer(_text)
_TextSchema = WithJsonSchema({"type": ["string", "integer"], "examples": ["90s", "15m", "1h30m", 0]})
#: A duration: text such as 15m in the file, seconds in the program.
Seconds = Annotated[float, _duration(), _AsText, _TextSchema]
Lease = Annotated[float, _duration(60.0), _AsText, _TextSchema]
BindLimit = Annotated[float, _duration(1.0), _AsText, _TextSchema]
Namespace = Annotated[
    str, AfterValidator(_namespace), Field(json_schema_extra={"pattern": f"^{DNS_LABEL.pattern}$"})
]
ObjectName = Annotated[str, AfterValidator(_object_name)]
PodSecurity = Annotated[str, AfterValidator(_one_of(LEVELS)), Field(json_schema_extra={"enum": [*LEVELS]})]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)]
NonNegative = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]
Gpus = Annotated[int, Field(ge=0, le=10_000)]
Waiting = Annotated[str, AfterValidator(_one_of(WAITING)), Field(json_schema_extra={"enum": [*WAITING]})]
OrderName = Annotated[str, AfterValidator(_one_of(ORDERS)), Field(json_schema_extra={"enum": [*ORDERS]})]
Placement = Annotated[
    str, AfterValidator(_one_of(PLACEMENTS)), Field(json_schema_extra={"enum": [*PLACEMENTS]})
]
PackerName = Annotated[str, AfterValidator(_one_of(PACKERS)), Field(json_schema_extra={"enum": [*PACKERS]})]
Returns = Annotated[str, AfterValidator(_one_of(RETURNS)), Field(json_schema_extra={"enum": [*RETURNS]})]


class Section(BaseModel):
    """A section of the file. Unknown fields and values of another type (such as "4" for 4) are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
