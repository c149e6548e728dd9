"""The section `http` of starburst.yaml."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from starburst.app.config.fields import Positive, Section
from starburst.hosts import is_loopback

#: Default port.
PORT = 8585


def _base_url(value: str) -> str:
    try:
        url = urlsplit(value)
        whole = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port
        whole = False
    plain = value.isascii() and value.isprintable() and not set(value) & set(" ?#@")
    if not whole or not plain:
        raise ValueError("must be an address such as http://starburst.example.org:8585, and no more")
    return value.rstrip("/")


def _host(value: str) -> str:
    if set(value) & set("/?#@") or any(each.isspace() or not each.isprintable() for each in value):
        raise ValueError("must be a host name or an address such as 0.0.0.0, and no more")
    return value


class HttpConfig(Section):
    """The HTTP API, the dashboard and the metrics."""

    enabled: bool = Field(True, description="false: there is none")
    host: Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_host)] = Field(
        "127.0.0.1", description="address to listen at; one that others can reach needs tokens"
    )
    port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None, description=f"0 is any free one; null is {PORT} or, if that is taken, any free one"
    )
    max_body: Annotated[int, Field(ge=1024, le=2**30)] = Field(
        2**20, description="bytes of a request at most; a large sweep may need more"
    )
    requests_per_second: Positive = Field(
        50.0, description="of one token, or of one address without; twice as many at a time"
    )
    streams: Annotated[int, Field(ge=1, le=10_000)] = Field(
        20, description="watches and followed logs at a time, of one token or address"
    )
    connections: Annotated[int, Field(ge=10, le=100_000)] = Field(
        1000, description="open at a time, of all callers; of those without a request the oldest gives way"
    )
    connections_per_address: Annotated[int, Field(ge=2, le=100_000)] = Field(
        200, description="the same of one address, or of one user of this machine; a proxy counts as one"
    )
    memory: Annotated[int, Field(ge=256 * 2**20)] = Field(
        2**30, description="bytes that the process which answers may have; what needs more fails"
    )
    report_url: Annotated[str, AfterValidator(_base_url)] | None = Field(
        None,
        description="where pods of the cluster reach this API, to say how far they are; null: they do not",
    )

    @field_validator("report_url")
    @classmethod
    def _of_what(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is not None and not info.data.get("enabled", True):
            raise ValueError("needs enabled: true")
        return url

    @property
    def is_local(self) -> bool:
        """Whether the server binds to loopback only."""
        return is_loopback(self.host)
