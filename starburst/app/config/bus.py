"""The section `bus` of starburst.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from starburst.app.config.fields import Name, Seconds, Section, file_path

FilePath = Annotated[str, AfterValidator(file_path)]

#: Lower limit of `keep`: a step of the scheduler is stored well before that.
LEAST_KEEP_S = 60.0


class BusConfig(Section):
    """Events out to a broker, and hints in from it."""

    kind: Literal["in-process", "mqtt"] = Field(
        "in-process", description="in-process: nobody outside is told; mqtt: an MQTT 5 broker"
    )
    cluster: Name = Field("default", description="the second level of every topic: starburst/<cluster>/…")
    host: str = Field("localhost", min_length=1, description="of the broker")
    tls: bool = Field(False, description="encrypt, and check who the broker is")
    port: int | None = Field(None, ge=1, le=65_535, description="null is 8883 with tls, else 1883")
    ca: FilePath | None = Field(
        None, description="a file of the authorities that vouch for the broker; null is the system's"
    )
    key: FilePath | None = Field(None, description="a file with the key of a client certificate")
    cert: FilePath | None = Field(None, description="a file with that certificate")
    username: str | None = Field(None, min_length=1, description="that the broker knows us by")
    password_file: FilePath | None = Field(
        None, description="a file whose first line is the password; read at every connect"
    )
    accept: list[Literal["submit", "cancel", "throughput", "heartbeat"]] = Field(
        [], description="hints that are listened to; who may publish to whose is the broker's affair"
    )
    anybody: bool = Field(
        False,
        description="also hints that name no user in their topic: who may send them speaks for all users",
    )
    keep: Seconds = Field(
        7 * 86_400.0, description="the retained state of a job is cleared this long after its end"
    )

    @field_validator("ca", "key", "cert")
    @classmethod
    def _for_tls(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is not None and not info.data.get("tls"):
            raise ValueError("needs tls: true")
        return file

    @field_validator("cert")
    @classmethod
    def _with_key(cls, cert: str | None, info: ValidationInfo) -> str | None:
        if (cert is None) != (info.data.get("key") is None):
            raise ValueError("key and cert go together; write both or none")
        return cert

    @field_validator("password_file")
    @classmethod
    def _whose(cls, file: str | None, info: ValidationInfo) -> str | None:
        if file is not None and info.data.get("username") is None:
            raise ValueError("needs username")
        return file

    @field_validator("accept")
    @classmethod
    def _from_whom(cls, accept: list[str], info: ValidationInfo) -> list[str]:
        if accept and info.data.get("kind") != "mqtt":
            raise ValueError("needs kind: mqtt; hints come from a broker")
        return accept

    @field_validator("anybody")
    @classmethod
    def _of_what(cls, anybody: bool, info: ValidationInfo) -> bool:
        if anybody and not info.data.get("accept"):
            raise ValueError("needs accept: which hints are listened to")
        return anybody

    @field_validator("keep")
    @classmethod
    def _long_enough(cls, keep: float) -> float:
        if keep < LEAST_KEEP_S:
            raise ValueError(f"must be at least {LEAST_KEEP_S:.0f}s")
        return keep
