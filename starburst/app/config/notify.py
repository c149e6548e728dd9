"""The sections `notify` and `smtp` of starburst.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from starburst.app.config.fields import Section, file_path, is_web_address

FilePath = Annotated[str, AfterValidator(file_path)]
NoticeEvent = Literal["ended", "failed", "burst", "cap-warned", "cap-reached", "leaked"]


def _web_address(value: str) -> str:
    if not is_web_address(value):
        raise ValueError("must be an address such as https://hooks.example/T1/B2")
    return value


class NotifyRule(Section):
    """Who is notified of what."""

    on: list[NoticeEvent] = Field(
        ["failed", "cap-warned", "cap-reached", "leaked"],
        min_length=1,
        description="ended: a job, in whichever way; failed: only so; burst: a job leaves for the cloud; "
        "cap-warned, cap-reached: of a cap; leaked: the reaper ends a machine that nothing claims",
    )
    webhook: Annotated[str, AfterValidator(_web_address)] | None = Field(
        None, description='an address that takes POSTs of {"text": …}, as those of Slack do'
    )
    webhook_file: FilePath | None = Field(None, description="a file whose first line is that address")
    email: list[str] = Field([], description="addresses; needs smtp")
    user: str | None = Field(None, min_length=1, description="only of this user's jobs and caps; null is all")
    queue: str | None = Field(None, min_length=1, description="only of this queue's; null is all")

    @model_validator(mode="after")
    def _one_target(self) -> NotifyRule:
        if (self.webhook is not None) + (self.webhook_file is not None) + bool(self.email) != 1:
            raise ValueError("give one of webhook, webhook_file and email")
        return self

    @property
    def address(self) -> str:
        """The address of the webhook; "" for e-mail.

        Raises:
            OSError: the file with it cannot be read.
        """
        if self.webhook_file is None:
            return self.webhook or ""
        return Path(self.webhook_file).read_text(encoding="utf-8").partition("\n")[0].strip()


class SmtpConfig(Section):
    """The server that takes e-mail."""

    host: str | None = Field(None, min_length=1, description="null: no e-mail is sent")
    port: int = Field(587, ge=1, le=65_535, description="of the server")
    starttls: bool = Field(True, description="encrypt, and check who the server is")
    username: str | None = Field(None, min_length=1, description="to log in with; null is without")
    password_file: FilePath | None = Field(
        None, description="a file whose first line is the password; read for every message"
    )
    sender: str = Field("starburst@localhost", min_length=3, description="the address in From")
