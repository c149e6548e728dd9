"""`cloud.volumes`: what may stand in for a cluster's volumes."""

from __future__ import annotations

import pytest

from translator.carried import Bucket, SkyVolume
from translator.field import Field, ManifestReport
from translator.tasks.storage.cloud_volumes import find_store, read_stores


def stores(mapping: object) -> tuple[dict[str, object], list[str]]:
    """What a mapping says, and what is wrong with it."""
    report = ManifestReport("starburst.yaml", 0)
    return dict(read_stores(Field(mapping, "cloud.volumes", report))), [str(error) for error in report.errors]


def test_a_bucket_is_a_url_or_one_with_a_mode_and_a_volume_is_a_name():
    found, errors = stores(
        {
            "pvc/sets": "s3://lab/sets/",
            "nfs:filer:/home/": {"source": "gs://homes", "mode": "MOUNT_CACHED"},
            "hostPath:/data": {"volume": "data-1"},
            "gs://lab/sets": "gs://lab/sets",
        }
    )
    assert not errors
    assert found == {
        "pvc/sets": Bucket("s3://lab/sets"),
        "nfs:filer:/home": Bucket("gs://homes", "MOUNT_CACHED"),
        "hostPath:/data": SkyVolume("data-1"),
        "gs://lab/sets": Bucket("gs://lab/sets"),
    }


def test_the_nearest_directory_stands_in_for_what_is_below_it():
    raw = {"hostPath:/data/raw": {"volume": "raw"}}
    mapping = {"hostPath:/": "s3://all", "hostPath:/data": "s3://data", **raw}
    found = read_stores(Field(mapping, "", ManifestReport("", 0)))
    assert find_store(found, "hostPath:", "/data/x/y") == (Bucket("s3://data"), "x/y")
    assert find_store(found, "hostPath:", "/data/raw/2026/") == (SkyVolume("raw"), "2026")
    assert find_store(found, "hostPath:", "/data") == (Bucket("s3://data"), "")
    assert find_store(found, "hostPath:", "/database") == (Bucket("s3://all"), "database")
    assert find_store(found, "nfs:filer:", "/data") is None


@pytest.mark.parametrize(
    ("mapping", "error"),
    [
        ({"claim/x": "s3://b"}, 'cloud.volumes["claim/x"]: no volume is named like this; write pvc/NAME, '),
        ({"pvc/x": "/mnt/x"}, 'cloud.volumes["pvc/x"]: "/mnt/x": must be the URL of a bucket, such as s3://'),
        ({"pvc/x": "s3://b/$HOME"}, 'cloud.volumes["pvc/x"]: "s3://b/$HOME": must be the URL of a bucket'),
        ({"pvc/x": 3}, 'cloud.volumes["pvc/x"]: 3: write a bucket such as s3://data/sets, or {volume: NAME}'),
        (
            {"pvc/x": {"source": "s3://b", "mode": "X"}},
            'cloud.volumes["pvc/x"].mode: "X": must be MOUNT or',
        ),
        ({"pvc/x": {"volume": "a b"}}, 'cloud.volumes["pvc/x"].volume: "a b": must be the name of a volume'),
        (
            {"pvc/x": {"volume": "a", "mode": "COPY"}},
            'cloud.volumes["pvc/x"].mode: is not a field of',
        ),
        (["pvc/x"], "cloud.volumes: must be a mapping of keys to values"),
    ],
)
def test_a_mistake_is_one_line_with_the_mend(mapping, error):
    _, errors = stores(mapping)
    assert len(errors) == 1
    assert errors[0].startswith(f"starburst.yaml: {error}")
