"""Volumes of jobs that may leave for machines: which go along, and what their container sees where."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import errors, job, pod, read_one
from translator.carried import Bucket, Carried, SkyVolume
from translator.intake.rules import IntakeRules
from translator.manifests.live_object import read_object
from translator.tasks.runtime_values import UnresolvedError, mounts_of, taken
from translator.tasks.storage.mounts import Mount

SETS, HOMES, DATA = Bucket("s3://lab/sets"), SkyVolume("homes"), Bucket("gs://data", "COPY")
STORES = {"pvc/sets": SETS, "nfs:filer:/home": HOMES, "hostPath:/data": DATA}
CARRIED = Carried(STORES)
SPEC = "spec.template.spec"
MOUNT = f"{SPEC}.containers[0].volumeMounts[0]"
NEVER = "set the annotation starburst.io/cloud: never"

CLAIM = {"persistentVolumeClaim": {"claimName": "sets"}}
READ_ONLY = {"persistentVolumeClaim": {"claimName": "sets", "readOnly": True}}
OTHER_CLAIM = {"persistentVolumeClaim": {"claimName": "results"}}
HOME = {"nfs": {"server": "filer", "path": "/home/ann", "readOnly": True}}
HOST = {"hostPath": {"path": "/data/raw"}}


def mounting(
    volume: dict[str, Any], annotations: dict[str, str] | None = None, **mount: Any
) -> dict[str, Any]:
    """A good Job that mounts one volume, at /in unless told otherwise."""
    made = job("POD/volumes", [{"name": "v", **volume}])
    found = {"name": "v", "mountPath": "/in", **mount}
    made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [found]
    made["metadata"]["annotations"] = annotations or {}
    return made


def told(manifest: dict[str, Any], carries: Carried | None = CARRIED) -> list[str]:
    """What is refused of a job of a Kubernetes."""
    return [line.partition(": ")[2] for line in errors(manifest, native=True, carries=carries)]


@pytest.mark.parametrize(
    ("volume", "mount", "seen"),
    [
        (CLAIM, {}, Mount("/in", SETS, "", False)),
        (CLAIM, {"readOnly": True, "subPath": "a/b/"}, Mount("/in", SETS, "a/b", True)),
        (READ_ONLY, {}, Mount("/in", SETS, "", True)),
        (HOME, {"subPath": "x"}, Mount("/in", HOMES, "ann/x", True)),
        (HOST, {}, Mount("/in", DATA, "raw", False)),
        ({"emptyDir": {}}, {"subPath": "s"}, Mount("/in", None, "0/s", False)),
        ({}, {"mountPath": "/dev/shm"}, Mount("/dev/shm", None, "0", False)),
    ],
)
def test_a_mapped_volume_is_seen_where_the_manifest_mounts_it(
    volume: dict[str, Any], mount: dict[str, Any], seen: Mount
) -> None:
    manifest = mounting(volume, **mount)
    assert told(manifest) == []
    assert mounts_of(manifest, STORES, in_container=True) == (seen,)


def test_what_is_another_thing_there_is_said() -> None:
    def notes(volume: dict[str, Any]) -> tuple[str, ...]:
        return read_one(mounting(volume), native=True, carries=Carried(STORES)).notes

    place = f"{SPEC}.volumes[0]"
    assert notes(CLAIM) == (
        f"{place}.persistentVolumeClaim: s3://lab/sets, which is no file system, in the cloud",
    )
    assert notes(HOME) == (f"{place}.nfs: SkyPilot's volume homes in the cloud",)
    assert notes({"emptyDir": {}}) == ()
    assert notes({"emptyDir": {"medium": "Memory"}}) == ()
    (limited,) = notes({"emptyDir": {"sizeLimit": "1Gi"}})
    assert limited == f"{place}.emptyDir.sizeLimit: does not limit a directory in the cloud"
    (unmapped,) = notes({"hostPath": {"path": "/scratch"}})
    assert unmapped == f"{place}: not mounted, paths are the machine's in the cloud"


def test_adopted_jobs_go_along_alike() -> None:
    manifest = mounting(CLAIM)
    stored = {"metadata": {"uid": "u", **manifest["metadata"]}, "spec": manifest["spec"]}
    found = read_object(stored, job_id="a", rules=IntakeRules(native=True, carries=Carried(STORES)))
    assert "s3://lab/sets" in found.notes[0]


def test_a_pod_is_read_as_well_as_a_job() -> None:
    mount = {"name": "v", "mountPath": "/in"}
    manifest = pod(volumes=[{"name": "v", **CLAIM}])
    manifest["spec"]["containers"][0]["volumeMounts"] = [mount]
    assert mounts_of(manifest, STORES, in_container=True) == (Mount("/in", SETS, "", False),)


def test_what_the_config_does_not_map_is_refused_by_its_key() -> None:
    (line,) = told(mounting(OTHER_CLAIM))
    assert line == (
        f"{SPEC}.volumes[0].persistentVolumeClaim: does not go along to a cloud; name what stands in for "
        f"pvc/results under cloud.volumes, or {NEVER}"
    )
    (line,) = told(mounting({"nfs": {"server": "filer", "path": "/homestead"}}))
    assert "name what stands in for nfs:filer:/homestead under cloud.volumes" in line


def test_where_nothing_goes_along_it_is_refused_as_ever() -> None:
    (line,) = told(mounting(CLAIM), None)
    assert line == (
        f"{SPEC}.volumes[0].persistentVolumeClaim: does not go along to a cloud; "
        f"only the cluster can do this: {NEVER}"
    )


def csi(driver: str, bucket: str, options: str = "", **source: Any) -> dict[str, Any]:
    attributes = {"bucketName": bucket, **({"mountOptions": options} if options else {})}
    return {"csi": {"driver": driver, "volumeAttributes": attributes, **source}}


GCSFUSE, MOUNTPOINT = "gcsfuse.csi.storage.gke.io", "s3.csi.aws.com"


@pytest.mark.parametrize(
    ("volume", "seen"),
    [
        (csi(GCSFUSE, "lab-sets"), Mount("/in", Bucket("gs://mirror"), "", False)),
        (
            csi(GCSFUSE, "lab-sets", "implicit-dirs,only-dir=a/b,uid=1000", readOnly=True),
            Mount("/in", Bucket("gs://mirror"), "a/b", True),
        ),
        (csi(GCSFUSE, "lab-sets", "only-dir=fast/x"), Mount("/in", SkyVolume("fast"), "x", False)),
        (csi(MOUNTPOINT, "lab-runs", "prefix some/dir/"), Mount("/in", Bucket("s3://r"), "some/dir", False)),
    ],
)
def test_a_bucket_of_a_csi_driver_goes_along_if_the_config_names_it(
    volume: dict[str, Any], seen: Mount
) -> None:
    stores = {
        "gs://lab-sets": Bucket("gs://mirror"),
        "gs://lab-sets/fast": SkyVolume("fast"),
        "s3://lab-runs": Bucket("s3://r"),
    }
    manifest = mounting(volume)
    assert told(manifest, Carried(stores)) == []
    assert mounts_of(manifest, stores, in_container=True) == (seen,)


@pytest.mark.parametrize(
    ("volume", "line"),
    [
        (
            csi(GCSFUSE, "others"),
            "does not go along to a cloud; name what stands in for gs://others under cloud.volumes, "
            f"or {NEVER}",
        ),
        (csi(GCSFUSE, "_"), f"does not go along to a cloud; only the cluster can do this: {NEVER}"),
        (csi("nfs.csi.k8s.io", "x"), f"does not go along to a cloud; only the cluster can do this: {NEVER}"),
    ],
)
def test_any_other_csi_volume_stays(volume: dict[str, Any], line: str) -> None:
    assert told(mounting(volume)) == [f"{SPEC}.volumes[0].csi: {line}"]
    with pytest.raises(UnresolvedError, match=r"volumes\[0\].csi: does not go along"):
        mounts_of(mounting(volume), STORES, in_container=True)


def test_files_of_secrets_go_along_where_values_do() -> None:
    manifest = mounting({"secret": {"secretName": "login"}})
    assert told(manifest) == []
    (line,) = told(manifest, None)
    assert line.startswith(f"{SPEC}.volumes[0].secret: does not go along to a cloud; only the cluster can")


def test_files_go_along_on_the_machine_itself_too() -> None:
    manifest = mounting({"secret": {"secretName": "login"}}, {"starburst.io/runtime": "host"})
    assert told(manifest) == []
    (found,) = mounts_of(manifest, STORES, in_container=False)
    assert (found.store, found.read_only, found.files) == (None, True, True)


@pytest.mark.parametrize("volume", [CLAIM, OTHER_CLAIM, HOME, HOST])
def test_who_stays_mounts_what_the_cluster_has(volume: dict[str, Any]) -> None:
    assert told(mounting(volume, {"starburst.io/cloud": "never", "starburst.io/runtime": "host"})) == []


@pytest.mark.parametrize("volume", [CLAIM, HOME, HOST])
def test_on_the_machine_itself_no_path_can_be_made(volume: dict[str, Any]) -> None:
    manifest = mounting(volume, {"starburst.io/runtime": "host"})
    line = (
        f"{MOUNT}.mountPath: cannot be made for a job on the machine itself, which others share; "
        f"give it an image, without starburst.io/runtime: host, or {NEVER}"
    )
    assert told(manifest) == [line]
    with pytest.raises(UnresolvedError, match="cannot be made for a job on the machine itself"):
        mounts_of(manifest, STORES, in_container=False)


@pytest.mark.parametrize(
    ("mount", "problem"),
    [
        ({"mountPath": "in"}, 'mountPath: "in": must be an absolute path, without a colon'),
        ({"mountPath": "/in:ro"}, 'mountPath: "/in:ro": must be an absolute path, without a colon'),
        ({"subPath": "a/../../b"}, 'subPath: "a/../../b": a path within may have no .. and no colon'),
        ({"subPath": "a:b"}, 'subPath: "a:b": a path within may have no .. and no colon'),
        ({"subPathExpr": "$(A)"}, "subPathExpr: is not filled in in the cloud; write subPath, or"),
        ({"name": "w"}, 'name: "w": there is no such volume; add it under volumes'),
    ],
)
def test_a_mount_that_cannot_be_is_refused_at_once(mount: dict[str, Any], problem: str) -> None:
    (line,) = told(mounting(CLAIM, **mount))
    assert line.startswith(f"{MOUNT}.{problem}")


def test_what_the_config_no_longer_maps_is_named_when_the_job_starts() -> None:
    with pytest.raises(UnresolvedError, match=r"volumes\[0\].persistentVolumeClaim: .* for pvc/sets under"):
        mounts_of(mounting(CLAIM), {}, in_container=True)


def test_what_a_job_takes_from_its_cluster_is_known_by_its_fields() -> None:
    manifest = mounting(CLAIM)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "b"}, {"name": "P", "valueFrom": {"secretKeyRef": {}}}]
    assert taken(manifest) == (
        f"{SPEC}.containers[0].env[1].valueFrom",
        f"{SPEC}.volumes[0].persistentVolumeClaim",
    )
    assert taken(mounting(HOST)) == taken(mounting({"emptyDir": {}})) == ()
