"""A PostgreSQL server of the tests' own, and the store's suites over it.

`pytest --postgres` opens a database of that server wherever a test opens a store by its path: one database a
path, dropped after the test. Files beside the path name the database to processes that the test starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL

from starburst.store import engine as engine_module
from starburst.store.engine import open_engine
from tests.kube.lab import skip

#: Where Debian puts the programs of a server, newest version first.
DEBIAN = Path("/usr/lib/postgresql")
#: How root starts it: PostgreSQL refuses to run as root.
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
#: Seconds for the server to start or stop.
START_S = 60.0


def programs() -> Path | None:
    """The directory of `postgres` and `initdb`; None where there is no PostgreSQL."""
    found = shutil.which("postgres")
    if found:
        return Path(found).parent
    versions = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda it: int(it.parts[-3]), reverse=True)
    return versions[0].parent if versions else None


@cache
def require() -> Path:
    """`programs`, for root of Debian's package; otherwise the test is skipped, or fails where none may be."""
    found = programs()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]
        try:
            subprocess.run(["apt-get", "update"], capture_output=True, timeout=120, check=True)
            subprocess.run(install, capture_output=True, timeout=600, check=True)
        except subprocess.SubprocessError as error:
            skip(f"Debian's postgresql cannot be installed: {error}")
        found = programs()
    return found or skip("there is no PostgreSQL; install Debian's package postgresql")


class Server:
    """A server in a directory of its own, on a socket there and on a port of 127.0.0.1 if one is given."""

    def __init__(self, root: Path, binaries: Path, port: int = 0) -> None:
        self.root = root
        self.port = port
        self._binaries = binaries
        # PostgreSQL refuses to run as root.
        self._as = (
            ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        )
        self._numbers = count()

    def make(self) -> None:
        """Create its files."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self._as:
            shutil.chown(self.root, "nobody", "nogroup")
        self._run(
            "initdb", "-D", self.data, "-U", "starburst", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"
        )

    @property
    def data(self) -> Path:
        return self.root / "data"

    def start(self, *options: str) -> None:
        """Start it, with settings such as "-c max_connections=20"; it answers then."""
        listens = "127.0.0.1" if self.port else ""
        quick = (
            f"-F -k {self.root} -p {self.port or 5432} -c listen_addresses={listens} -c max_connections=200"
        )
        what = " ".join((quick, *options))
        self._run(
            "pg_ctl", "-D", self.data, "-l", self.root / "log", "-w", "-t", START_S, "-o", what, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" ends its connections, "immediate" is a crash."""
        self._pg_ctl("-m", mode, "stop")

    def url(self, database: str = "postgres", user: str = "starburst") -> str:
        """The URL of a database, over the socket, or over the port if it has one."""
        if self.port:
            return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{user}@/{database}?host={self.root}"

    def sql(self, statement: str, database: str = "postgres") -> list[Any]:
        """The rows of a statement, in a connection of its own."""
        import psycopg

        with closing(psycopg.connect(self.url(database), autocommit=True)) as conn:
            done = conn.execute(statement)  # type: ignore[arg-type]
            return done.fetchall() if done.description else []

    def create(self, template: str = "template1") -> str:
        """The URL of a new database."""
        name = f"db{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, and whoever is connected to it."""
        self.sql(f"DROP DATABASE IF EXISTS {database_of(url)} WITH (FORCE)")

    def _pg_ctl(self, *arguments: object) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-t", round(START_S), *arguments)

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._as, str(self._binaries / program), *map(str, arguments)]
        environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command,
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * START_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {(self.root / 'said').read_text()[-3000:]}"


def database_of(url: str) -> str:
    """The name of a URL's database."""
    return url.split("?", maxsplit=1)[0].rsplit("/", 1)[1]


@contextmanager
def server(port: int = 0, *, durable: bool = False) -> Iterator[Server]:
    """A server while the block lasts, in a directory short enough for a socket's name.

    `durable`: on the disk, with its commits on it, too; otherwise in memory.
    """
    binaries = require()
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not durable else None
    root = Path(tempfile.mkdtemp(prefix="pg-", dir=in_memory))
    root.chmod(0o755)
    one = Server(root, binaries, port)
    try:
        one.make()
        one.start(*(["-c fsync=on"] if durable else []))
        try:
            yield one
        finally:
            one.stop("immediate")
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Databases:
    """A database for each path that a test opens as a store."""

    def __init__(self, of: Server) -> None:
        self._server = of
        self._urls: dict[Path, str] = {}
        of.sql("CREATE DATABASE migrated")
        open_engine(of.url("migrated")).dispose()
        self._url_of = engine_module.store_url

    def url(self, where: str | Path) -> URL:
        """What `store_url` gives instead: of a path, the URL of its database, made at its first use."""
        if isinstance(where, str) and "://" in where:
            return self._url_of(where)
        path = Path(where).absolute()
        if path not in self._urls:
            self._urls[path] = self._server.create("migrated")
            self._server.sql(RENAME, database_of(self._urls[path]))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name("store.url").write_text(self._urls[path])
        return self._url_of(self._urls[path])

    def drop(self) -> None:
        """Remove them all."""
        while self._urls:
            self._server.drop(self._urls.popitem()[1])


#: Every store has an id of its own; copies of the template would share one.
RENAME = "UPDATE facts SET body = '\"' || left(md5(random()::text), 8) || '\"' WHERE key = 'controller'"
