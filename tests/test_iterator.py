"""One line in a job says how fast it goes, and never gets in its way."""

from __future__ import annotations

import copy
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starburst import iterator
from starburst.iterator import watch


class Loader:
    """As PyTorch's, as far as loops care."""

    def __init__(self, length: int) -> None:
        self.batch_size = 32
        self.epoch = 0
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._length))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Clock:
    """Every look at it takes so long."""

    def __init__(self, tick_s: float) -> None:
        self.now, self.tick_s = 100.0, tick_s

    def __call__(self) -> float:
        self.now += self.tick_s
        return self.now


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "report.json"
    monkeypatch.setenv("STARBURST_REPORT", str(path))
    return path


def told(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.read_text())
    del found["at"]
    return found


@pytest.mark.parametrize("items", [[], [1, 2, 3], (n for n in "abc"), {"a": 1}, "text"])
@pytest.mark.parametrize("listened_to", [True, False])
def test_a_loop_sees_what_it_would_see_without_it(
    items: Any, listened_to: bool, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listened_to:
        monkeypatch.delenv("STARBURST_REPORT")
    expected = list(copy.copy(items)) if not hasattr(items, "send") else ["a", "b", "c"]
    if hasattr(items, "send"):
        items = iter("abc")
    assert list(watch(items)) == expected


def test_a_loader_stays_itself() -> None:
    loader = watch(Loader(7))
    loader.set_epoch(3)
    assert (len(loader), loader.epoch, loader.batch_size) == (7, 3, 32)
    with pytest.raises(AttributeError):
        loader.nonsense  # noqa: B018
    assert len(pickle.loads(pickle.dumps(loader))) == 7
    assert not hasattr(watch(iter("a")), "__len__")


def test_iterations_a_second_are_told_once_a_window_over_all_epochs(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterator.time, "monotonic", Clock(0.5))
    loader = watch(Loader(15), total=60, done=5)
    for _ in range(2):
        list(loader)
    found = told(report)
    assert (found["done"], found["total"]) == (5 + 19, 60)
    assert found["per_s"] == pytest.approx(2.0, rel=0.1)


def test_a_pause_between_epochs_counts(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(iterator.time, "monotonic", clock)
    loader = watch(Loader(50))
    list(loader)
    clock.now += 50
    next(it := iter(loader))
    next(it)
    assert told(report) == {"done": 51, "total": None, "per_s": pytest.approx(51 / 50)}


def test_what_a_loop_that_is_left_had_done_counts_and_what_it_was_at_does_not(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(iterator.time, "monotonic", clock)
    loader = watch(Loader(50))
    for number in loader:
        if number == 4:
            break
    one, other = iter(loader), iter(loader)
    for it in (one, other, one, other, one):
        next(it)
    clock.now += 50
    next(other)
    next(one)
    assert told(report)["done"] == 4 + 2 + 3


def test_it_is_silent_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STARBURST_REPORT", raising=False)
    monkeypatch.chdir(tmp_path)
    items = [1, 2, 3]
    assert type(iter(watch(items))) is type(iter(items)), "nothing stands between the loop and the list"
    assert not list(tmp_path.iterdir())


def test_it_is_not_in_the_way_when_its_listener_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone" / "report.json"
    monkeypatch.setenv("STARBURST_REPORT", str(gone))
    monkeypatch.setattr(iterator.time, "monotonic", Clock(20.0))
    before = threading.active_count()
    assert list(watch(range(5))) == [0, 1, 2, 3, 4]
    assert threading.active_count() == before


def test_what_the_iterable_raises_is_the_loops_own_affair(report: Path) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad sector")

    with pytest.raises(ValueError, match="bad sector"):
        list(watch(broken()))


def test_importing_it_imports_nothing_of_starburst_and_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules); import starburst.iterator;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names))); print(sorted(set(sys.modules) & "
        "{'json', 'asyncio', 'argparse', 'socket', 'threading'} - before))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[0] == "['starburst']"
    assert out.splitlines()[1] == "[]"


def test_the_profiler_measures_for_as_long_as_it_is_told_and_ends_the_program(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import itertools, sys, time\n"
        "from starburst.iterator import watch\n"
        "print('begins with', sys.argv[1])\n"
        "for _ in watch(itertools.count()):\n"
        "    time.sleep(0.001)\n"
    )
    command = [sys.executable, "-m", "starburst.iterator", "--profile", "0.3", str(program), "--lr"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "begins with --lr\n")
    measured = json.loads((tmp_path / "throughput.json").read_text())
    assert measured["seconds"] >= 0.3
    assert 10 < measured["per_s"] < 1000
    assert measured["per_s"] == pytest.approx(measured["iterations"] / measured["seconds"])


def test_a_profile_goes_on_over_epochs_and_is_written_when_the_last_one_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setenv("STARBURST_PROFILE", "100")
    monkeypatch.setenv("STARBURST_PROFILE_OUT", str(out))
    monkeypatch.setattr(iterator.time, "monotonic", Clock(1.0))
    loader = watch(Loader(30))
    for _ in range(2):
        assert list(loader) == list(range(30))
    assert json.loads(out.read_text())["iterations"] == 60 - 10, "the first tenth is not counted"
    with pytest.raises(SystemExit) as ended:
        [list(loader) for _ in range(9)]
    assert ended.value.code == 0
    assert json.loads(out.read_text())["seconds"] == 100.0


def test_a_profiled_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "starburst.iterator", "--profile", "1", "none.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("none.py: there is no such file")


# Over the network. Each program is a process of its own, whose last report goes out at its end.

PROGRAM = """
import time
from starburst import iterator
iterator.WINDOW_S = 0
for _ in iterator.watch(range(50), total=50):
    time.sleep(0.001)
"""

#: Names the threads that use the network. A loop is held up if its own thread is one of them, however
#: fast or slow this machine is.
AUDITED = """
import sys, threading
senders = set()
def audit(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        senders.add(threading.current_thread().name)
sys.addaudithook(audit)
"""


class Listener:
    """Takes reports over HTTP, and answers them all alike."""

    def __init__(self, status: int = 204) -> None:
        told = self.told = list[tuple[str, str | None, dict[str, Any]]]()

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.append((self.path, self.headers["Authorization"], body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Listener:
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def ran(where: str, program: str = PROGRAM, **env: str) -> float:
    """Wall seconds that a program took. It must say nothing and end well."""
    began = time.monotonic()
    known = {name: value for name, value in os.environ.items() if not name.startswith("STARBURST_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**known, "STARBURST_REPORT": where, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return time.monotonic() - began


def test_over_http_it_says_the_same_with_its_token_and_the_last_word_goes_out() -> None:
    with Listener() as listener:
        ran(f"{listener.url}/here?x=1", STARBURST_REPORT_TOKEN="secret", STARBURST_RANK="2")
    assert {(path, token) for path, token, _ in listener.told} == {("/here?x=1", "Bearer secret")}
    done = [body["done"] for _, _, body in listener.told]
    assert done == sorted(set(done))
    last = listener.told[-1][2]
    assert last.pop("per_s") > 0
    assert last == {"done": 50, "total": 50, "rank": 2}


def test_a_listener_that_does_not_answer_holds_up_neither_the_loop_nor_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        for where in (f"http://127.0.0.1:{port}/", f"mqtt://127.0.0.1:{port}/topic"):
            program = f"{AUDITED}{PROGRAM}\nassert senders == {{'starburst-report'}}, senders"
            ran(where, program, STARBURST_JOB="a", STARBURST_ATTEMPT="1")
        patient_s = 25.0
        program = PROGRAM.replace("WINDOW_S = 0", f"WINDOW_S, iterator.TIMEOUT_S = 0, {patient_s}")
        waited = ran(f"http://127.0.0.1:{port}/", program) - ran("/dev/null/no", program)
    assert waited < patient_s - 5, "which it would wait for an answer"


@pytest.mark.parametrize(
    "where",
    ["http://127.0.0.1:1/", "http://", "http://[", "http://a:b", "mqtt://", "https://no.invalid/", "x://y"],
)
def test_who_is_not_there_is_not_missed(where: str, tmp_path: Path) -> None:
    check = "assert 'MainThread' not in senders"
    ran(where, f"import os; os.chdir({str(tmp_path)!r})\n{AUDITED}{PROGRAM}\n{check}")


def test_it_says_no_more_to_who_says_that_the_run_is_over() -> None:
    with Listener(410) as listener:
        ran(listener.url, PROGRAM.replace("range(50)", "range(200)"))
    assert len(listener.told) == 1


def test_pauses_after_failures_grow_until_one_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    now, arrives, tries = 0.0, False, list[float]()

    def send(_: object) -> None:
        tries.append(now)
        if not arrives:
            raise OSError

    monkeypatch.setattr(iterator, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setitem(iterator._SENDERS, "http", lambda _: send)
    line = iterator._Line("http://x")

    def put_until_tried() -> float:
        """Seconds after the last try until a report is tried again; one is put every ten."""
        nonlocal now
        known, began = len(tries), now
        while True:
            line.put({})
            line._wait()
            if len(tries) > known:
                return now - began
            now += iterator.WINDOW_S

    assert [put_until_tried() for _ in range(8)] == [0, 20, 40, 80, 160, 320, 600, 600]
    arrives = True
    assert put_until_tried() == 600
    arrives = False
    assert [put_until_tried() for _ in range(2)] == [0, 20]


def test_a_process_that_forks_has_no_thread_of_ours() -> None:
    program = f"""
import os, threading
forks = []
os.register_at_fork(before=lambda: forks.append(threading.active_count()))  # runs after those that come later
{PROGRAM}
for _ in range(3):
    list(iterator.watch(range(3)))
    if os.fork() == 0:
        os._exit(0)
    os.wait()
assert forks == [1, 1, 1], forks
"""
    with Listener() as listener:
        ran(listener.url, program)


def test_a_child_process_reports_for_itself() -> None:
    program = f"""
import os
{PROGRAM}
if os.fork() == 0:
    for _ in iterator.watch(range(20), total=70, done=50):
        time.sleep(0.001)
else:
    assert os.wait()[1] == 0
"""
    with Listener() as listener:
        ran(listener.url, program)
    assert {body["total"] for _, _, body in listener.told} == {50, 70}
    assert listener.told[-1][2]["done"] == 70
