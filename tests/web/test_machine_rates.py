"""What a machine costs an hour is the same on each page: what is paid for now."""

from __future__ import annotations

from pathlib import Path

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.core.model.events import MachinesLost
from starburst.domain.job import CloudChoice
from starburst.domain.resources import Resources
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.cli.past import Past
from tests.web.conftest import HERE, TestClient


def test_a_lost_machine_of_several_is_not_paid_for_on_the_overview_either(home: Path, past: Past) -> None:
    past.submit("gang-77777", tasks=(Resources.of(1),) * 3, least_tasks=1, cloud=CloudChoice.ONLY)
    past.ready("i-000003")
    past.start("gang-77777")
    past.tell(MachinesLost("i-000003", ((1, past.now),)))
    with TestClient(make_app(AppContext(Home(home), past.store), HttpConfig()), base_url=HERE) as browser:
        overview, machine = (browser.get(path).text for path in ("/", "/machines/i-000003"))
    assert "<dd>$2.04/h</dd>" in machine
    _, _, box = overview.partition('<a href="/machines/i-000003">')
    assert '<span class="used">$2.04/h' in box
