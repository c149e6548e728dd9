"""Each reason to refuse a manifest, or to keep its job on the cluster, stands in docs/manifests.md."""

from __future__ import annotations

from tests.translator import reasons
from tests.translator.manifests import errors, job


def test_the_page_has_every_reason_of_the_code_and_no_other() -> None:
    _, listed, _ = reasons.parts(reasons.PAGE.read_text())
    assert listed.split("\n") == reasons.listed().strip("\n").split("\n"), (
        "write it anew: python -m tests.translator.reasons"
    )


def test_what_a_user_is_told_is_found_in_the_page() -> None:
    page = reasons.PAGE.read_text()
    for path, value in (
        ("spec/template/spec/restartPolicy", "Always"),
        ("POD/nodeName", "n1"),
        ("CONTAINER/command", "python3"),
        ("POD/affinity", {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        ("POD/topologySpreadConstraints", [{"whenUnsatisfiable": "DoNotSchedule"}]),
        ("POD/resourceClaims", [{"name": "gpu"}]),
    ):
        (line,) = errors(job(path, value), native=True)
        assert line.rpartition(": ")[2].partition(";")[0] in page, line
