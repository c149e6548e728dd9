"""Who holds a token of one queue learns nothing of the others: no id, no name, no user, from any route."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.core.model.events import NodesChanged, OffersChanged
from starburst.core.scheduler import Scheduler
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import CloudChoice, Phase
from starburst.store import cron_jobs, tokens
from starburst.store.store import Store
from starburst.store.tokens import Role, Token
from starburst.web.app import make_app, serve
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.cli.past import NOON, Past
from tests.web.conftest import API, HERE, TestClient, api_of_process

MINE, THEIRS = "open", "secret-queue"
CONFIG = {
    "policy": {"waiting": "compute", "factor": 0.08, "packer": "eva", "out_of_order": True},
    "queues": [{"name": MINE}, {"name": THEIRS}],
    "caps": [{"usd": 100, "per": "day", "queue": THEIRS, "user": "secret-user"}],
}


class Mixed(Past):
    """Jobs of two queues that share nodes and machines and come after each other."""

    def reborn(self) -> None:
        config = parse_config(CONFIG, "test")
        nodes, offers = self.scheduler.state.capacity.nodes, tuple(self.scheduler.state.fleet.offers.values())
        self.store.set_fact("config", config.model_dump(mode="json"))
        self.scheduler = Scheduler(config.settings())
        self.tell(NodesChanged(tuple(nodes)), OffersChanged(offers))

    def of(self, queue: str, number: int, gpus: int = 1, **more: Any) -> str:
        name = f"{'mine' if queue == MINE else 'secret'}{number}-x{number:04d}"
        user = "ada" if queue == MINE else "secret-user"
        self.submit(name, gpus, queue=queue, user=user, **more)
        return name


@contextmanager
def mixed() -> Iterator[tuple[Mixed, AppContext]]:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        home = Path(root) / "home"
        with Mixed.begin(home / "starburst.db", NOON) as past, Store.open(home / "starburst.db") as store:
            assert isinstance(past, Mixed)
            past.reborn()
            yield past, AppContext(Home(home), store)


def told(app_context: AppContext, *queues: str, role: str = "viewer") -> dict[str, str]:
    """Every answer that the token of these queues gets, of all that can be asked for."""
    secret = tokens.create(app_context.store, Token(f"t{len(queues)}", Role(role), queues or None, NOON))
    bearer = {"Authorization": f"Bearer {secret}"}
    app = api_of_process()
    serve(app, app_context, HttpConfig(requests_per_second=10_000))
    with TestClient(app, base_url=HERE, headers=bearer) as client:
        found: dict[str, str] = {}

        def ask(path: str, method: str = "GET", **more: Any) -> httpx.Response:
            answer = client.request(method, API + path, **more)
            assert answer.status_code < 500, answer.text
            found[f"{method} {path}"] = answer.text
            return answer

        for row in ask("/jobs").json():
            for part in ("", "/explain", "/events"):
                ask(f"/jobs/{row['id']}{part}")
            ask(f"/jobs?name={row['name']}")
        for path in ("/events", "/events?newest=true", "/instances?all=true", "/nodes", "/offers", "/caps"):
            ask(path)
        for by in ("user", "queue", "job"):
            ask(f"/cost?by={by}")
        ask("/summary")
        ask("/jobs/s")
        ask("/jobs?name=s")
        manifest = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "probe", "labels": {"starburst.io/queue": MINE}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "command": ["true"]}]},
        }
        ask("/jobs?dry_run=true", "POST", json=manifest)
        manifest["metadata"]["labels"]["starburst.io/queue"] = "no-such"  # type: ignore[index]
        ask("/jobs?dry_run=true", "POST", json=manifest)
        for name in ("s", "m"):
            found["POST " + name] = ask("/jobs/cancel", "POST", json={"names": [name]}).text
        return found


steps = st.lists(
    st.tuples(
        st.sampled_from((MINE, THEIRS)),
        st.sampled_from((1, 1, 2, 4)),
        st.sampled_from(tuple(CloudChoice)),
        st.sampled_from(("", "", "after_ok", "after_any")),
        st.sampled_from(("", "start", "end", "fail", "cloud")),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def live(past: Mixed, story: Any) -> None:
    """What happens in one morning."""
    for number, (queue, gpus, cloud, after, then, hold) in enumerate(story):
        known = list(past.scheduler.state.jobs)
        more = {after: tuple(known[-2:])} if after and known else {}
        past.of(queue, number, gpus, cloud=cloud, hold=hold, **more)
        past.now += 60
        if then == "cloud":
            for machine in list(past.scheduler.state.fleet.instances.values()):
                if machine.phase is InstancePhase.LAUNCHING:
                    past.ready(machine.id)
        for record in list(past.scheduler.state.jobs.values()) if then else ():
            if record.phase is Phase.STARTING:
                past.start(record.id)
            elif record.phase is Phase.RUNNING and then in ("end", "fail"):
                past.end(record.id, 1 if then == "fail" else 0)


@settings(max_examples=12)
@given(steps)
def test_no_answer_of_any_route_names_what_is_in_another_queue(story: Any) -> None:
    with mixed() as (past, app_context):
        live(past, story)
        for path, answer in told(app_context, MINE, role="admin").items():
            assert "secret" not in answer, (path, answer)


def meet(past: Mixed) -> None:
    """One job passes another, two share a machine, one comes after another and one ends with another."""
    past.of(THEIRS, 1, 4, cloud=CloudChoice.NEVER)
    past.start("secret1-x0001")
    past.of(THEIRS, 2, 4, cloud=CloudChoice.NEVER)
    past.of(MINE, 3, cloud=CloudChoice.NEVER, after_ok=("secret2-x0002",))
    past.of(MINE, 4, cloud=CloudChoice.NEVER, after_any=("secret1-x0001",), hold=True)
    past.of(THEIRS, 5, cloud=CloudChoice.NEVER, hold=True)
    past.of(MINE, 6, cloud=CloudChoice.NEVER, after_ok=("secret1-x0001",))
    past.end("secret1-x0001", 1)
    past.start("secret2-x0002")
    past.of(THEIRS, 7, 4, cloud=CloudChoice.NEVER)
    past.end("secret2-x0002", 0)
    past.start("secret7-x0007")


def test_what_an_admin_reads_by_name_the_token_reads_as_anothers() -> None:
    with mixed() as (past, app_context):
        meet(past)
        everything, scoped = told(app_context), told(app_context, MINE)
        assert "comes after secret2-x0002 if that succeeds" in everything["GET /jobs/mine3-x0003"]
        assert "comes after another queue's job if that succeeds" in scoped["GET /jobs/mine3-x0003"]
        assert "as another queue's job, which it comes after" in scoped["GET /jobs/mine6-x0006"]
        (told_of,) = [row for row in json.loads(scoped["GET /jobs"]) if row["id"] == "mine6-x0006"]
        assert told_of["message"].startswith("cancelled, as another queue's job")
        assert not [path for path, answer in scoped.items() if "secret" in answer]


def test_how_anothers_job_stands_now_is_not_told_either() -> None:
    with mixed() as (past, app_context):
        past.of(THEIRS, 1, 4, cloud=CloudChoice.NEVER)
        past.start("secret1-x0001")
        past.of(MINE, 2, cloud=CloudChoice.NEVER, after_ok=("secret1-x0001",))
        path = "GET /jobs/mine2-x0002/explain"
        assert "secret1-x0001 is running" in told(app_context)[path]
        assert "is running" not in told(app_context, MINE)[path]


def test_who_was_passed_and_who_shares_a_machine_is_told_as_anothers() -> None:
    with mixed() as (past, app_context):
        past.of(MINE, 1, 2, cloud=CloudChoice.NEVER)
        past.of(THEIRS, 2, 4, cloud=CloudChoice.NEVER)
        past.of(MINE, 3, 1, cloud=CloudChoice.NEVER)
        past.of(THEIRS, 4, 1, cloud=CloudChoice.ONLY, runtime_estimate_s=7200.0)
        past.ready("i-000001")
        past.of(MINE, 5, 1, cloud=CloudChoice.ONLY, runtime_estimate_s=60.0)
        everything, scoped = told(app_context)["GET /events"], told(app_context, MINE)["GET /events"]
        assert "passed secret2-x0002" in everything
        assert "passed another queue's job" in scoped
        shared = [row for row in json.loads(everything) if row["numbers"].get("sharers")]
        assert [row["numbers"]["sharers"] for row in shared] == ["secret4-x0004"]
        seen = [row for row in json.loads(scoped) if row["numbers"].get("sharers")]
        assert [row["numbers"]["sharers"] for row in seen] == ["another queue's job"]
        assert "secret" not in scoped


def test_the_stream_of_the_log_tells_no_more() -> None:
    with mixed() as (past, app_context):
        meet(past)
        made = Token("t", Role.VIEWER, (MINE,), time.time())
        bearer = {"Authorization": f"Bearer {tokens.create(app_context.store, made)}"}
        with listening(config := HttpConfig(port=0)) as sock, serving(app_context, config, sock) as url:
            whole = httpx.get(f"{url}{API}/events", headers=bearer).json()
            text, seen = "", 0
            with httpx.stream("GET", f"{url}{API}/watch?after=0", headers=bearer, timeout=10) as answer:
                for line in answer.iter_lines():
                    text += line + "\n"
                    seen += line.startswith("data: ")
                    if seen == len(whole):
                        break
        assert "another queue's job" in text
        assert "secret" not in text


def test_a_cron_job_of_another_queue_is_not_replaced_by_one_of_its_name() -> None:
    """The admins of two teams submit a CronJob of one name for the same user."""

    def nightly(queue: str, command: str) -> dict[str, Any]:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "command": [command]}]}
        metadata = {"name": "nightly", "labels": {"starburst.io/queue": queue}}
        spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
        return {"kind": "CronJob", "apiVersion": "batch/v1", "metadata": metadata, "spec": spec}

    with mixed() as (_, app_context):
        client = TestClient(make_app(app_context, HttpConfig()), base_url=HERE)

        def submit(queue: str, command: str, *queues: str) -> dict[str, Any]:
            token = Token(f"{command}-{len(queues)}", Role.ADMIN, queues or None, NOON)
            bearer = {"Authorization": f"Bearer {tokens.create(app_context.store, token)}"}
            answer = client.post(f"{API}/jobs?user=ada", json=nightly(queue, command), headers=bearer)
            assert answer.status_code == 201, answer.text
            row: dict[str, Any] = answer.json()[0]
            return row

        def there() -> list[tuple[str, str, tuple[str, ...]]]:
            found = cron_jobs.every(app_context.store)
            return [(one.id, one.queue, one.submission.workload.command) for one in found]

        theirs = submit(THEIRS, "theirs", THEIRS)
        mine = submit(MINE, "mine", MINE)
        assert theirs["id"] not in str(mine)
        assert there() == [(theirs["id"], THEIRS, ("theirs",)), (mine["id"], MINE, ("mine",))]
        assert submit(MINE, "newer", MINE)["id"] == mine["id"]
        assert submit(MINE, "newest")["id"] == mine["id"]
        assert there() == [(theirs["id"], THEIRS, ("theirs",)), (mine["id"], MINE, ("newest",))]


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_pages_that_show_all_queues_are_not_for_it(path: str) -> None:
    with mixed() as (past, app_context):
        meet(past)
        secret = tokens.create(app_context.store, Token("t", Role.ADMIN, (MINE,), NOON))
        bearer = {"Authorization": f"Bearer {secret}"}
        with TestClient(make_app(app_context, HttpConfig()), base_url=HERE, headers=bearer) as client:
            answer = client.get(path)
        assert answer.status_code == 403
        assert "secret" not in answer.text
