"""Sends a message by webhook or e-mail; one that does not arrive is tried again some times, then logged."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from email.utils import formatdate, make_msgid, parseaddr
from pathlib import Path

import httpx
import structlog

from starburst.aio import in_thread
from starburst.app.config.notify import NotifyRule, SmtpConfig

log = structlog.get_logger()

#: Wall seconds of one attempt; and the pauses between attempts.
TIMEOUT_S = 10.0
PAUSES_S = (1.0, 5.0, 30.0, 120.0)
#: Statuses of a webhook that another attempt would not change.
FINAL = (400, 401, 403, 404, 405, 410)

Sleep = Callable[[float], Awaitable[None]]


class UndeliverableError(Exception):
    """A message was refused for good."""


async def deliver(rule: NotifyRule, smtp: SmtpConfig, text: str, sleep: Sleep = asyncio.sleep) -> bool:
    """Whether a message arrived, after all attempts. It may arrive twice, if an answer was lost.

    Copies of an e-mail have the same Message-ID, by which mail programs know them for one.
    """
    problem: object = None
    mail_id = make_msgid(domain=parseaddr(smtp.sender)[1].rpartition("@")[2] or "localhost")
    for pause_s in (*PAUSES_S, None):
        try:
            await (_by_mail(rule, smtp, text, mail_id) if rule.email else _by_webhook(rule, text))
        except UndeliverableError as error:
            problem = error
            break
        except smtplib.SMTPRecipientsRefused as error:  # the others have it
            problem, rule = error, rule.model_copy(update={"email": list(error.recipients)})
        except (httpx.HTTPError, OSError, smtplib.SMTPException) as error:
            problem = error
        except Exception as error:  # an address or a password that a library can make nothing of
            problem = error
            break
        else:
            return True
        if pause_s is not None:
            await sleep(pause_s)
    target = ", ".join(rule.email) or "webhook"  # its address may be a secret
    log.warning("notice-not-sent", target=target, error=f"{type(problem).__name__}: {_plain(problem, rule)}")
    return False


async def _by_webhook(rule: NotifyRule, text: str) -> None:
    address = await in_thread(lambda: rule.address)
    async with (
        httpx.AsyncClient(timeout=TIMEOUT_S) as client,
        client.stream("POST", address, json={"text": text}) as answer,
    ):
        status = answer.status_code  # what comes behind it may have no end
    if status in FINAL:
        raise UndeliverableError(f"status {status}")
    if status >= 300:
        raise httpx.TransportError(f"status {status}")


async def _by_mail(rule: NotifyRule, smtp: SmtpConfig, text: str, mail_id: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Date"] = smtp.sender, ", ".join(rule.email), formatdate()
    mail["Message-ID"] = mail_id
    mail["Subject"] = f"Starburst: {text.splitlines()[0][:150]}"
    mail.set_content(text)
    await in_thread(lambda: _send(mail, smtp))


def _send(mail: EmailMessage, smtp: SmtpConfig) -> None:
    with smtplib.SMTP(smtp.host or "", smtp.port, timeout=TIMEOUT_S) as server:
        if smtp.starttls:
            server.starttls(context=ssl.create_default_context())
        if smtp.username is not None:
            file = smtp.password_file
            password = "" if file is None else Path(file).read_text(encoding="utf-8").partition("\n")[0]
            server.login(smtp.username, password)
        if refused := server.send_message(mail):
            raise smtplib.SMTPRecipientsRefused(refused)


def _plain(problem: object, rule: NotifyRule) -> str:
    """The problem without the address, which a library may have put into it."""
    text = str(problem)
    return text.replace(rule.webhook, "…") if rule.webhook else text
