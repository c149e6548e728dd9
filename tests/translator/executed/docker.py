"""A stand-in for `docker create`: reads its arguments as docker 20.10 does, into the process it would start.

Source: docker's documentation of `docker run` and `--env-file` (one NAME=VALUE a line, # begins a comment).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.translator.executed.kubelet import Image, Process

#: Options with a value that say nothing of the process, and those without a value.
_OTHERS = frozenset(
    (
        *("--name", "--label", "--log-driver", "--network", "--pids-limit", "--cpus", "--memory"),
        *(
            "--memory-swap",
            "--cap-drop",
            "--cap-add",
            "--security-opt",
            "--cpuset-cpus",
            "--gpus",
            "--cgroup-parent",
            "--ulimit",
        ),
    )
)
_FLAGS = frozenset(("--read-only",))


def created(arguments: list[str], client: Mapping[str, str], image: Image) -> Process:
    """The process that these arguments of `create` make; `client` is the environment of the client.

    Volumes are made as links, except where the machine itself has them (/starburst).
    """
    at = arguments.index("--")
    env, cwd, entrypoint, ids, groups = dict(image.env), image.working_dir, image.entrypoint, "", []
    for option, value in _options(arguments[:at]):
        if option == "--env-file":
            env |= dict(_variables(Path(value)))
        elif option == "-e":
            name, given, text = value.partition("=")
            env |= {name: text} if given else {name: client[name]} if name in client else {}
        elif option == "-v":
            _mount(*value.split(":")[:2])
        elif option == "--tmpfs":
            Path(value.partition(":")[0]).mkdir(parents=True)
        elif option == "--workdir":
            cwd = value
        elif option == "--entrypoint":
            entrypoint, image = (value,), Image((), (), image.env, image.working_dir)
        elif option == "--user":
            ids = value
        elif option == "--group-add":
            groups.append(int(value))
        else:
            assert option in _OTHERS, f"{option} is new: say here what it does"
    words = arguments[at + 2 :]
    user, _, group = ids.partition(":")
    return Process(
        argv=[*entrypoint, *(words or image.cmd)],
        env=env,
        cwd=cwd,
        user=int(user) if user else None,
        group=int(group) if group else None,
        groups=tuple(groups),
    )


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    rest = iter(words)
    for word in rest:
        name, given, value = word.partition("=")
        if word in _FLAGS:
            continue
        yield (name, value) if given and word.startswith("--") else (word, next(rest))


def _variables(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text().split("\n"):
        text = line.lstrip()
        if text and not text.startswith("#"):
            name, _, value = text.partition("=")
            assert not set(name) & set(" \t"), f"docker refuses the name {name!r}"
            yield name, value


def _mount(source: str, path: str) -> None:
    if not path.startswith("/starburst/"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(source, path)
