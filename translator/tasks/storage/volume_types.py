"""Checks the volumes of a pod: their types, and which of them keep a job on its cluster."""

from __future__ import annotations

from translator.field import Field, Fields
from translator.tasks.storage.mounts import MAPPED, NOT_MOUNTED, volume_name
from translator.tasks.storage.volume_files import FILES

#: Volume types without data from outside of the node.
_HOST_VOLUMES = ("emptyDir", "hostPath")
_OTHER_VOLUMES = {
    "configMap": "write the file in the command, or keep it on the nodes under a hostPath",
    "csi": "use a hostPath that every node has",
    "downwardAPI": "write the values under env",
    "ephemeral": "use emptyDir",
    "image": "use a hostPath that every node has",
    "iscsi": "use a hostPath that every node has",
    "nfs": "mount it on every node and use a hostPath",
    "persistentVolumeClaim": "use a hostPath that every node has, or storage the command reaches itself",
    "projected": "write the values under env",
    "secret": "keep the file on the nodes under a hostPath",
}
#: Disks and file systems of clouds and vendors, most of them replaced by csi.
_DISKS = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)
_OTHER_VOLUMES |= dict.fromkeys(_DISKS, "use a hostPath that every node has")
_EMBEDDED = Fields(
    "a volume",
    read=("name", *_HOST_VOLUMES),
    refused={kind: f"this type of volume is not supported; {mend}" for kind, mend in _OTHER_VOLUMES.items()},
)
_NATIVE = Fields("a volume", read=("name", *_HOST_VOLUMES, *_OTHER_VOLUMES))
#: The fields of the sources that people write themselves; the first is required, but of emptyDir.
_FILES = ("items", "defaultMode", "optional")
_SOURCES = {
    "configMap": Fields("a configMap volume", read=("name", *_FILES)),
    "emptyDir": Fields("an emptyDir", read=("medium", "sizeLimit")),
    "hostPath": Fields("a hostPath", read=("path", "type")),
    "nfs": Fields("an nfs volume", read=("server", "path", "readOnly")),
    "persistentVolumeClaim": Fields("a claim", read=("claimName", "readOnly")),
    "secret": Fields("a secret volume", read=("secretName", *_FILES)),
}
_REQUIRED = {"hostPath": "path", "nfs": "server", "persistentVolumeClaim": "claimName"}


def check_volumes(spec: Field, *, carried: bool) -> None:
    """Check the volumes of a pod spec; `carried`: volumes of the types MAPPED may have storage in the cloud,
    and files of the types FILES go along, which `read_mounts` judges.
    """
    for volume in spec.at("volumes").items():
        if spec.report.native:
            _check_native(volume, carried=carried)
        else:
            volume.check(_EMBEDDED)
            volume.note("not mounted by the embedded cluster; paths are the host's")


def _check_native(volume: Field, *, carried: bool) -> None:
    volume.check(_NATIVE)
    volume.at("name").text()
    kinds = [kind for kind, found in volume.entries().items() if kind != "name" and found.value is not None]
    if len(kinds) > 1:
        volume.refuse(f"has {' and '.join(kinds)}; a volume has one type, make two of it", show=False)
    for kind in kinds:
        _check_source(volume.at(kind), kind)
        if kind in _HOST_VOLUMES and not carried:
            volume.note_away(NOT_MOUNTED)
        elif kind in _OTHER_VOLUMES and not (carried and kind in (*MAPPED, *FILES)):
            volume.at(kind).stay(volume_name(volume))


def _check_source(source: Field, kind: str) -> None:
    if kind in _SOURCES:
        source.check(_SOURCES[kind])
    if kind == "emptyDir":
        medium = source.at("medium")
        if medium.value not in (None, "", "Memory") and not str(medium.value).startswith("HugePages"):
            medium.refuse("must be Memory, or absent for disk")
    required = _REQUIRED.get(kind)
    if required is not None and not source.at(required).text():
        source.at(required).refuse("is missing; write it")
