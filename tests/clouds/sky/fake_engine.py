"""A stand-in for docker on a machine: a shell script that keeps the contract of docker's command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

#: Files beside it say how it behaves: `dead`, `hangs`; `image` (it is there), `user` (the image's); `pull`,
#: `create` (shell code of these verbs), `run` (of the container, with its variables); `state`: how it stands.
SCRIPT = """#!/bin/sh
here=$(dirname "$0")
[ "$1" = --log-level=error ] && shift
printf '%s|' "$@" >>"$here/said"; echo >>"$here/said"
if [ "$1" = --version ]; then cat "$here/version"; exit; fi
if [ -e "$here/dead" ]; then
    echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2; exit 1
fi
if [ -e "$here/hangs" ]; then exec sleep 60; fi
if [ "$1" = --config ]; then cat "$2/config.json" >>"$here/logins"; echo >>"$here/logins"; shift 2; fi
case "$1" in
image) [ -e "$here/image" ] || { echo "Error: No such image: $5" >&2; exit 1; }; cat "$here/user";;
info) cat "$here/info";;
pull) . "$here/pull" && touch "$here/image";;
create)
    ( for word; do
        if [ "$before" = --env-file ] && [ -e "$word" ]; then
            while IFS= read -r line; do export "$line"; done <"$word"
        fi
        before=$word
    done
    export -p >"$here/given" )
    . "$here/create"; cp "$here/begun" "$here/state"; echo "$here/id" | sha256sum | cut -c1-64;;
start) [ ! -e "$here/given" ] || . "$here/given"; . "$here/run";;
exec) . "$here/exec";;
container)
    [ -e "$here/state" ] || { echo "Error: No such container: $3" >&2; exit 1; }
    cat "$here/state";;
rm)
    rm -f "$here/given"
    rm "$here/state" 2>/dev/null || { echo "Error: No such container: $3" >&2; exit 1; };;
ps) cat "$here/containers";;
stop) touch "$here/stopped";;
esac
"""


class FakeEngine:
    """The engine in the directory `bin`, which stands in the PATH of a machine."""

    def __init__(self, bin_: Path, program: str = "docker") -> None:
        self.bin = bin_
        bin_.mkdir(parents=True, exist_ok=True)
        path = bin_ / program
        path.write_text(SCRIPT)
        path.chmod(0o755)
        if program == "docker":  # this host's podman is none of the machine's
            (bin_ / "podman").write_text("#!/bin/sh\nexit 1\n")
            (bin_ / "podman").chmod(0o755)
        self.put("version", f"{program} version 20.10.24\n")
        for name in ("user", "info", "pull", "create", "run", "exec", "containers"):
            self.put(name, "")
        self.put("image", "")
        self.put("begun", self.state("running"))

    def put(self, name: str, text: str) -> None:
        """How it behaves from now on."""
        (self.bin / name).write_text(text)

    def runs(self, shell: str, code: int = 0, *, oom: bool = False) -> None:
        """What the container does, and how it ends."""
        ended = self.state("exited", code, oom=oom)
        self.put("ended", ended)
        self.put("run", f'{shell}\ncp "{self.bin}/ended" "{self.bin}/state"\n')

    def state(self, status: str, code: int = 0, *, oom: bool = False, error: str = "") -> str:
        """What the engine says of a container; with an error it never began."""
        began = "0001-01-01T00:00:00Z" if error else "2026-01-01T00:00:00Z"
        facts = {"Status": status, "StartedAt": began, "ExitCode": code, "OOMKilled": oom, "Error": error}
        return json.dumps([{"Id": "f" * 64, "State": facts}])

    @property
    def said(self) -> list[list[str]]:
        """How it was called, but for questions about its version."""
        path = self.bin / "said"
        lines = path.read_text().splitlines() if path.exists() else []
        calls = [line.rstrip("|").split("|") for line in lines]
        return [call for call in calls if call[0] not in ("version", "--version")]

    def called(self, verb: str) -> list[str]:
        """The arguments of the first call of a verb."""
        return next(call for call in self.said if call[0] == verb)

    @property
    def path(self) -> str:
        """The PATH of its machine."""
        return f"{self.bin}:{os.environ['PATH']}"
