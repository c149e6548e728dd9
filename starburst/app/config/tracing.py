"""The section `tracing` of starburst.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from starburst.app.config.fields import Section, file_path, is_web_address
from starburst.app.errors import UserError


def _url(value: str) -> str:
    if not is_web_address(value):
        raise ValueError("must be a URL such as http://127.0.0.1:4318/v1/traces")
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise ValueError("must not have a password in it; put an Authorization line into headers_file")
    if parts.path in ("", "/"):
        raise ValueError("needs the path, which is /v1/traces with most collectors")
    return value


class TracingConfig(Section):
    """A span per decision, sent to a collector of OpenTelemetry."""

    endpoint: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description="where a collector takes OTLP over HTTP; null: nothing is sent"
    )
    service: Annotated[str, Field(min_length=1, max_length=255)] = Field(
        "starburst", description="service.name of all spans"
    )
    headers_file: Annotated[str, AfterValidator(file_path)] | None = Field(
        None, description="a file with headers to send along, a line each (Name: value); read at every send"
    )

    @field_validator("headers_file")
    @classmethod
    def _to_whom(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is not None and info.data.get("endpoint") is None:
            raise ValueError("needs endpoint")
        return file

    def headers(self) -> dict[str, str]:
        """The HTTP headers in `headers_file`, read anew on each call.

        Raises:
            UserError: the file cannot be read, or a line is not a header; its content is not shown.
        """
        if self.headers_file is None:
            return {}
        field = f"tracing.headers_file: {self.headers_file}"
        try:
            lines = Path(self.headers_file).read_text("ascii").splitlines()
        except OSError as error:
            raise UserError(f"{field}: cannot be read ({error.strerror}); name an existing file") from None
        except UnicodeDecodeError:
            raise UserError(f"{field}: has signs that a header cannot have; write plain ASCII") from None
        headers = {}
        for number, line in enumerate(lines, start=1):
            name, colon, value = (part.strip() for part in line.partition(":"))
            if not line.strip():
                continue
            if not (colon and name.replace("-", "").replace("_", "").isalnum() and value.isprintable()):
                raise UserError(f"{field}, line {number}: is no header; write Name: value")
            headers[name] = value
        return headers
