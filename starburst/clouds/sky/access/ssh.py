"""`MachineTransport` over ssh: one connection per machine, shared by all exchanges (ControlMaster)."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starburst.clouds.sky.access import archive
from starburst.clouds.sky.access.agent_archive import agent_archive, agent_path
from starburst.clouds.sky.access.answers import decoded, visible
from starburst.clouds.sky.access.hostkeys import CHANGED, HostKeys
from starburst.clouds.sky.access.ports import Access, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.access.programs import communicate, pipe, within

#: Wall seconds.
CONNECT_S, CALL_S, TRANSFER_S = 10, 30.0, 3600.0
#: ssh's own failures, and what a shell says of a missing file that Python was to run.
SSH_FAILED, NO_AGENT = 255, 2

#: SkyPilot's own Python on a machine, which is 3.9 or newer whatever the image has; else the image's.
PYTHON = '"$([ -s ~/.sky/python_path ] && cat ~/.sky/python_path || command -v python3)"'


class SshTransport:
    """Machines by ssh. Private keys and pinned host keys are below `root`, readable by the owner only."""

    def __init__(self, root: Path) -> None:
        self._keys = root / "keys"
        self._keys.mkdir(parents=True, exist_ok=True)
        self._keys.chmod(0o700)
        self._hosts = HostKeys(root / "hosts")
        # A socket's path is at most 107 bytes long, which a home directory's may exceed.
        self._sockets = Path(tempfile.mkdtemp(prefix="sb-ssh-"))
        self._agent = agent_path()
        #: Asked before each contact with a machine that may change something; raises SkyError to refuse it.
        self.fence: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Drop the connections; ssh ends them a minute after their last use."""
        shutil.rmtree(self._sockets, ignore_errors=True)

    def forget(self, cluster: str) -> None:
        """See `MachineTransport`."""
        self._hosts.forget(cluster)

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        """See `MachineTransport`."""
        command = f"exec {PYTHON} -I {self._agent} {verb}"
        data = json.dumps(payload).encode()
        if verb != "exchange":  # which keeps to its lease by itself
            self.fence()
        code, out, err = await self._run(cluster, access, command, data)
        if code == NO_AGENT:
            await self._install(cluster, access)
            code, out, err = await self._run(cluster, access, command, data)
        if code != 0:
            raise SkyError(f"{cluster}: the agent failed: {_last_line(err)}")
        return decoded(out)

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        """See `MachineTransport`."""
        await self._trust(cluster, access)
        self.fence()
        with archive.packing(local) as (pack, directory):
            unpack = self._ssh(cluster, access, archive.unpack_there(remote))
            call = pipe(pack, unpack, (directory,))
            (packed, why), (code, err) = await within(TRANSFER_S, call, f"{cluster}: sending")
        self._check(cluster, code, err)
        if packed not in (0, archive.CHANGED_MEANWHILE):  # there, a pack that breaks off may look whole
            raise LocalError(f"{local} cannot be packed: {_last_line(why)}")

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        """See `MachineTransport`."""
        await self._trust(cluster, access)
        try:
            with archive.unpacking(local) as (unpack, new):
                call = pipe(self._ssh(cluster, access, archive.pack_there(remote)), unpack)
                (code, err), (unpacked, why) = await within(TRANSFER_S, call, f"{cluster}: fetching")
                if code == archive.NO_DIRECTORY:
                    return
                if code == archive.IS_LINK:
                    raise SkyError(f"{cluster}: {remote} is a link there")
                self._check(cluster, code, err)
                self._check(cluster, unpacked, why)
                archive.put(new, local)
        except OSError as error:
            raise LocalError(f"{cluster}: fetching: {error}") from error

    async def enter(self, cluster: str, access: Access, task: str, command: Sequence[str]) -> list[str]:
        """The ssh command that runs a command beside a task (job/attempt/rank), on this terminal.

        Raises:
            SkyError: the machine cannot be logged in to.
        """
        code, _, _ = await self._run(cluster, access, f"test -e {self._agent}", b"")
        if code != 0:
            await self._install(cluster, access)
        words = " ".join(map(shlex.quote, (task, *command)))
        argv = self._ssh(cluster, access, f"exec {PYTHON} -I {self._agent} enter {words}")
        return [argv[0], "-tt" if sys.stdin.isatty() else "-T", *argv[1:]]

    async def _install(self, cluster: str, access: Access) -> None:
        """Send the agent; under its name it is there as a whole or not at all."""
        new = f"{self._agent}.$$"
        put = f"cat >{new} && mv -T {new} {self._agent}"
        command = f"mkdir -p ~/starburst && {{ {put} || {{ rm -f {new}; exit 1; }}; }}"
        code, _, err = await self._run(cluster, access, command, agent_archive())
        self._check(cluster, code, err)

    async def _run(self, cluster: str, access: Access, command: str, data: bytes) -> tuple[int, bytes, bytes]:
        await self._trust(cluster, access)
        call = communicate(self._ssh(cluster, access, command), data)
        code, out, err = await within(CALL_S, call, cluster)
        if code == SSH_FAILED:
            self._check(cluster, code, err)
        return code, out, err

    async def _trust(self, cluster: str, access: Access) -> None:
        """Pin the host key of a machine at the first contact with it."""
        if self._hosts.is_pinned(cluster):
            return
        with self._hosts.first_contact(cluster) as known:
            login = self._ssh(cluster, access, "true", known)
            code, _, err = await within(CALL_S, communicate(login, b""), cluster)
            if code == SSH_FAILED:
                self._check(cluster, code, err)
        if not self._hosts.is_pinned(cluster):
            raise SkyUnreachableError(f"{cluster}: ssh tells no host key")

    @staticmethod
    def _check(cluster: str, code: int, err: bytes) -> None:
        if code == SSH_FAILED and CHANGED in err:
            raise SkyError(
                f"{cluster}: its ssh host key is not the one of the first contact; it is not trusted"
            )
        if code == SSH_FAILED:
            raise SkyUnreachableError(f"{cluster}: {_last_line(err)}")
        if code != 0:
            raise SkyError(f"{cluster}: a transfer failed: {_last_line(err)}")

    def _ssh(self, cluster: str, access: Access, command: str, first: Path | None = None) -> list[str]:
        """The command line of a login; `first` is where the machine's key goes at first contact."""
        whose = hashlib.sha256(cluster.encode()).hexdigest()[:8]
        options = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self._key_file(access.private_key)),
            "LogLevel": "ERROR",
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPath": str(self._sockets / f"{whose}%C"),
            "ControlPersist": "60",
            **self._hosts.options(cluster, first or self._hosts.path(cluster), first=first is not None),
        }
        if access.proxy_command:
            options["ProxyCommand"] = access.proxy_command
        flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        where = ["-p", str(access.port), "--", f"{access.user}@{access.host}"]
        return ["ssh", "-F", "/dev/null", *flags, *where, f"bash -c {shlex.quote(command)}"]

    def _key_file(self, private_key: str) -> Path:
        path = self._keys / hashlib.sha256(private_key.encode()).hexdigest()[:16]
        if not path.exists():
            staging = path.with_suffix(f".{os.getpid()}")
            staging.touch(0o600)
            staging.write_text(private_key, encoding="utf-8")
            staging.rename(path)
        return path


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return visible(lines[-1]) if lines else "without a word"
