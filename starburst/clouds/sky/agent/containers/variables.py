"""How a container gets the variables of its job, without any in the environment of what makes it.

A job names its variables as it likes, and programs of the machine read some as settings of their own: the
loader LD_AUDIT, an engine's client DOCKER_HOST. A job that set one of these for the agent or the client
would have the machine. So what a line holds goes to the engine in a file, which is the machine user's alone
and there for the one call that makes the container. What no line holds is in the environment of that call,
unless it has such a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starburst.clouds.sky.agent.containers.options import TaskRefusedError
from starburst.clouds.sky.agent.task_dirs import GIVEN, SECRETS, facts
from starburst.runs.supervisor.files import open_private, remove

#: Bytes of a line at most: Docker's client reads no longer ones.
MAX_LINE = 60_000
#: Names that the loader, sudo or a client of an engine reads as its own settings.
_SETTINGS = re.compile(
    r"PATH|HOME|TMPDIR|LOCPATH|GCONV_PATH|GLIBC_TUNABLES|(LD|SUDO|XDG|SSL_CERT|OPENSSL)_.*"
    r"|GO(DEBUG|TRACEBACK)|(HTTPS?|NO|ALL)_PROXY|_?(CONTAINERS?|STORAGE|PODMAN|BUILDAH)_.*|REGISTRY_AUTH_FILE"
    r"|DOCKER_(HOST|CONFIG|CONTEXT|API_VERSION|CERT_PATH|TLS.*|CONTENT_TRUST.*|DEFAULT_PLATFORM|CLI_.*)",
    re.IGNORECASE,
)


def take_secrets(path: str) -> dict[str, str]:
    """The values of Secrets of the task in this directory, whose file is removed.

    Raises:
        OSError: the machine is short of something, and they cannot be read now.
    """
    secrets: dict[str, str] = facts(os.path.join(path, SECRETS)) or {}
    remove(os.path.join(path, SECRETS))
    return secrets


@contextmanager
def given(
    path: str, long: Mapping[str, str], secrets: Mapping[str, str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The options, and the variables of the client, that give a container what its env file does not.

    `long` are variables of the job with line ends in them.

    Raises:
        TaskRefusedError: one cannot be given under its name.
    """
    lines = {name: value for name, value in secrets.items() if _is_line(name, value)}
    client = {**long, **{name: value for name, value in secrets.items() if name not in lines}}
    for name in sorted(client):
        if _SETTINGS.fullmatch(name):
            why = f"a value with line ends cannot be given as {name}; choose another name"
            raise TaskRefusedError(f"CreateContainerConfigError: {why}")
    options = [part for name in sorted(client) for part in ("-e", name)]
    file_ = os.path.join(path, GIVEN)
    try:
        if lines:
            with open(file_, "w", encoding="utf-8", opener=open_private) as file:
                file.writelines(f"{name}={value}\n" for name, value in sorted(lines.items()))
            options = ["--env-file", file_, *options]
        yield options, client
    finally:
        remove(file_)


def _is_line(name: str, value: str) -> bool:
    """Whether a line of an env file can hold it as it is."""
    text = f"{name}={value}".encode(errors="replace")
    is_text = "\n" not in value and "\r" not in value and text.decode() == f"{name}={value}"
    return is_text and not name.startswith("#") and len(text) <= MAX_LINE
