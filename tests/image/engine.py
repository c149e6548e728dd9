"""A container engine of the tests' own (Debian's docker.io), and an image of the project in it.

Its base is made of Debian's packages in place of the one that deploy/Dockerfile names, since a test has no
registry: another Python, the same steps.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.debian import DOCKER, require
from tests.kube.lab import skip

ROOT = Path(__file__).parents[2]
IMAGE = "starburst:test"
BASE = "local/python:test"
#: What it is to have beside a minimal Debian, and the release.
SUITE, INCLUDED = "bookworm", "python3-minimal,python3-pip,ca-certificates"
#: How this machine reaches the index of packages: its base has it, too.
OF_THE_HOST = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
UP_S, BUILD_S = 60.0, 900.0


class Engine:
    """One that runs."""

    def __init__(self, host: str) -> None:
        self._host = host

    def docker(self, *words: str, patience_s: float = 60.0) -> str:
        """A command that must succeed; what it prints."""
        done = self._run(words, patience_s)
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def answers(self) -> bool:
        """Whether it is up."""
        return self._run(("info",), 20.0).returncode == 0

    def logs(self, container: str) -> str:
        """Both streams."""
        done = self._run(("logs", container), 20.0)
        return done.stdout + done.stderr

    def build(self, directory: Path) -> None:
        """The image, from what a release has in the context of its image."""
        self._make_base(directory / "base")
        context = directory / "context"
        for name in ("deploy/Dockerfile", "requirements/image.txt", _wheel()):
            target = context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        dockerfile = str(context / "deploy" / "Dockerfile")
        words = ("build", "--network", "host", "--build-arg", f"BASE={BASE}", "-f", dockerfile, "-t", IMAGE)
        self.docker(*words, str(context), patience_s=BUILD_S)

    def _make_base(self, root: Path) -> None:
        command = ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(root), *_mirror()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
        if done.returncode:
            skip(f"Debian's packages cannot be had: {done.stdout[-500:]}")
        for path in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            path.unlink()
        (root / "usr" / "bin" / "python").symlink_to("python3")
        for name in OF_THE_HOST:
            if (Path("/") / name).exists():
                shutil.copy(Path("/") / name, root / name)
        archive = root.with_suffix(".tar")
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], timeout=120, check=True)
        shutil.rmtree(root)
        self.docker("import", str(archive), BASE, patience_s=120.0)
        archive.unlink()

    def _run(self, words: Sequence[str], patience_s: float) -> subprocess.CompletedProcess[str]:
        command = ["docker", "-H", self._host, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)


def _mirror() -> list[str]:
    """Where this machine has its packages from, if it is of that release; else debootstrap's default."""
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
    done = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=False)
    pairs = (line.split() for line in done.stdout.splitlines())
    return [uri for uri, release in pairs if release == SUITE][:1]


def _wheel() -> str:
    found = sorted(ROOT.glob("dist/*.whl"), key=lambda path: path.stat().st_mtime)
    assert found, "there is no wheel: make wheel"
    return f"dist/{found[-1].name}"


@contextmanager
def engine(directory: Path) -> Iterator[Engine]:
    """One that keeps all of its state in a directory; its containers end with it."""
    require(*DOCKER)
    host = f"unix://{directory}/docker.sock"
    command = ["dockerd", "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec", "-H", host]
    command += ["--pidfile", f"{directory}/pid", "--iptables=false", "--bridge=none"]
    with (directory / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    made = Engine(host)
    try:
        give_up = time.monotonic() + UP_S
        while not made.answers():
            told = (directory / "dockerd.log").read_text()[-1500:]
            assert process.poll() is None, told
            assert time.monotonic() < give_up, told
            time.sleep(0.2)
        yield made
    finally:
        for container in made.docker("ps", "-q").split() if process.poll() is None else ():
            made.docker("rm", "-f", container)
        process.terminate()
        process.wait(60)
        for mounted in (directory / "exec" / "netns").glob("*"):  # the host's network, of its containers
            subprocess.run(["umount", mounted], check=True, timeout=60)
