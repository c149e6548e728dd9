"""Keys and directories of a rented machine with ssh's own client and server."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.clouds.sky.access.ports import Access, SkyError
from starburst.clouds.sky.access.ssh import SshTransport
from tests.clouds.sky.test_ssh import contact, machine, run

__all__ = ["contact", "machine"]  # fixtures

pytestmark = pytest.mark.processes

SECRET = {"specs": {"a/1/0": {"secrets": {"PASSWORD": "s3cret"}}}}
THERE = "~/starburst/checkpoints/a"


SSHD = Path("/usr/sbin/sshd")


class Server:
    """An sshd on loopback, with a host key of its own; it lets in whoever has the key `user`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.new_key()
        self._keygen("user")

    def _keygen(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._root / name], check=True, timeout=20
        )

    def new_key(self) -> None:
        """Another machine, then."""
        self._keygen("host")

    def start(self) -> Access:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))
            self.port = probe.getsockname()[1]
        options = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": self._root / "host",
            "AuthorizedKeysFile": self._root / "user.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
        }
        flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        argv = [str(SSHD), "-D", "-e", "-f", "/dev/null", *flags]
        self._process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < give_up, f"sshd does not listen; {self._process.poll()}"
            time.sleep(0.02)
        user = pwd.getpwuid(os.getuid()).pw_name
        return Access("127.0.0.1", user, (self._root / "user").read_text(), self.port)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if not SSHD.exists() or os.getuid():
        pytest.skip("needs root, and Debian's openssh-server")
    Path("/run/sshd").mkdir(exist_ok=True)  # as its service does it
    made = Server(tmp_path / "server")
    yield made
    made.stop()


def test_ssh_itself_keeps_to_the_pinned_key(tmp_path: Path, server: Server) -> None:
    def login(cluster: str) -> str:
        made = SshTransport(tmp_path / "ours")  # a connection of its own each time, as after a restart
        try:
            code, out, _ = run(made._run(cluster, access, "cat; exit 3", b"for that machine alone"))
            return f"{code} {out.decode()}"
        finally:
            made.close()

    access = server.start()
    assert login("c") == login("c") == "3 for that machine alone"
    assert (tmp_path / "ours" / "hosts" / "c").read_text().startswith("c ssh-ed25519 ")
    server.stop()
    server.new_key()
    server.start()
    with pytest.raises(SkyError, match="its ssh host key is not the one of the first contact"):
        login("c")
    assert login("d") == "3 for that machine alone", "the address belongs to another machine now"


def test_directories_go_and_come_by_ssh_itself(contact: SshTransport, tmp_path: Path, server: Server) -> None:
    access = server.start()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "step").write_text("1")
    run(contact.send("c", access, here, str(there)))
    (there / "step").write_text("2")
    run(contact.fetch("c", access, str(there), here))
    assert (here / "step").read_text() == "2"
    there.rename(tmp_path / "elsewhere")
    there.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SkyError, match="is a link there"):
        run(contact.fetch("c", access, str(there), here))
