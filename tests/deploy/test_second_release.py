"""The chart installed a second time in a cluster, for a Starburst beside another one."""

from __future__ import annotations

from typing import Any

from tests.deploy.render import RELEASE, objects


def test_a_release_for_a_second_starburst_makes_nothing_that_the_first_one_has() -> None:
    """Helm refuses a release with an object of another one."""

    def made(release: str, **values: Any) -> set[tuple[str, str, str]]:
        found = objects({"starburst": values}, release=release)
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in found
        }

    first, second = made(RELEASE), made("second", leaseName="second")
    assert len(first) == len(second) + 1
    assert not first & second
