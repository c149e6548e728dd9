"""Translates volumes of a pod to buckets, SkyPilot volumes, directories, and files of ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from translator.carried import Bucket, CloudStorage
from translator.fidelity import STAY, Fidelity
from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.references import CONFIG_MAP, SECRET, Lookup
from translator.tasks.shell import File, ShellExpression
from translator.tasks.storage.cloud_volumes import stand_in
from translator.tasks.storage.csi_buckets import bucket_of

_SHARED_MEMORY = "/dev/shm"
_WRITABLE = "it can be written to in the cloud"


@dataclass(slots=True)
class Storage:
    """The storage of a task: mounts, and the directories and files that its script creates."""

    file_mounts: dict[str, Any] = field(default_factory=dict)
    volumes: dict[str, Any] = field(default_factory=dict)
    directories: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    #: Contents of Secrets by the variable that carries them.
    secrets: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Mounting:
    """Turns the volumes that a container mounts into a `Storage`."""

    stores: Mapping[str, CloudStorage]
    lookup: Lookup
    fidelity: Fidelity
    storage: Storage = field(default_factory=Storage)

    def read(self, spec: Field, container: Field) -> Storage:
        """Translate the volumes of a pod; unmounted ones are dropped."""
        mounts = [mount for mount in container.at("volumeMounts").items() if self._is_sound(mount)]
        declared = {volume.at("name").text() for volume in spec.at("volumes").items()}
        for mount in mounts:
            if mount.at("name").text() not in declared:
                mount.at("name").refuse("there is no such volume; add it under volumes")
        for volume in spec.at("volumes").items():
            here = [mount for mount in mounts if mount.at("name").value == volume.at("name").value]
            if here:
                self._volume(volume, here)
            else:
                self.fidelity.dropped(volume, "the container does not mount it")
        return self.storage

    def _is_sound(self, mount: Field) -> bool:
        path = mount.at("mountPath").text() or ""
        if not path.startswith("/") or "$" in path:
            mount.at("mountPath").refuse("must be an absolute path, without $")
        elif mount.at("subPathExpr").value:
            mend = f"is not filled in; write subPath, or {STAY}"
            self.fidelity.refused(mount.at("subPathExpr"), mend)
        else:
            if mount.at("mountPropagation").value:
                self.fidelity.dropped(mount.at("mountPropagation"), "no other container is there")
            if mount.at("readOnly").flag():
                self.fidelity.approximated(mount.at("readOnly"), _WRITABLE)
            return True
        return False

    def _volume(self, volume: Field, mounts: list[Field]) -> None:
        kinds = [key for key, found in volume.entries().items() if key != "name" and found.value is not None]
        kind = kinds[0] if kinds else ""
        source = volume.at(kind)
        if kind in ("emptyDir", ""):  # Kubernetes takes an absent source for emptyDir
            self._empty(volume.at("emptyDir"), volume, mounts)
        elif kind in ("configMap", "secret"):
            self._files(source, kind, mounts)
        elif kind in ("persistentVolumeClaim", "nfs", "hostPath"):
            self._stored(source, kind, mounts)
        elif kind == "csi" and bucket_of(source) is not None:
            self._bucket(source, mounts)
        else:
            self.fidelity.refused(source, f"this type of volume does not go along; {ONLY_THE_CLUSTER}")

    def _empty(self, source: Field, volume: Field, mounts: list[Field]) -> None:
        if len({_sub_path(mount) for mount in mounts}) < len(mounts):
            self.fidelity.refused(volume, "is mounted at two places, which would differ; mount it once")
            return
        paths = [_path(mount) for mount in mounts]
        if paths == [_SHARED_MEMORY]:
            self.fidelity.approximated(volume, f"{_SHARED_MEMORY} is there, of SkyPilot's size")
        else:
            self.storage.directories += paths
            on = "disk, not memory" if source.at("medium").value == "Memory" else "disk"
            self.fidelity.approximated(
                volume, f"a directory on {on}, which is not emptied: {', '.join(paths)}"
            )
        if source.at("sizeLimit").value is not None:
            self.fidelity.dropped(source.at("sizeLimit"), "no limit holds for a directory")

    def _stored(self, source: Field, kind: str, mounts: list[Field]) -> None:
        key, found = stand_in(self.stores, source, kind)
        if found is None:
            mend = f"name what stands in for {key} under cloud.volumes, or {STAY}"
            self.fidelity.refused(source, mend)
            return
        store, below = found
        for mount in mounts:
            self._mount(source, mount, store.below(below).below(_sub_path(mount)))
        if source.at("readOnly").flag():
            self.fidelity.approximated(source.at("readOnly"), _WRITABLE)

    def _bucket(self, source: Field, mounts: list[Field]) -> None:
        """Mount the bucket of a CSI driver itself, or what the config names in its place."""
        key, found = stand_in(self.stores, source, "csi")
        store, below = found or (Bucket(key), "")
        for mount in mounts:
            self._mount(source, mount, store.below(below).below(_sub_path(mount)))
        if source.at("readOnly").flag():
            self.fidelity.approximated(source.at("readOnly"), _WRITABLE)

    def _mount(self, source: Field, mount: Field, store: CloudStorage) -> None:
        path = _path(mount)
        if isinstance(store, Bucket):
            self.storage.file_mounts[path] = {"source": store.source, "mode": store.mode}
            self.fidelity.approximated(source, f"{store.source} at {path}, {store.mode}: a bucket, no disk")
        else:
            name: dict[str, Any] | str = {"name": store.name, "sub_path": store.sub_path}
            self.storage.volumes[path] = name if store.sub_path else store.name
            self.fidelity.approximated(
                source, f"SkyPilot's volume {store.name} at {path}; clouds with volumes alone are looked at"
            )

    def _files(self, source: Field, kind: str, mounts: list[Field]) -> None:
        """Add the files of a ConfigMap or Secret, which the script writes before the command starts."""
        name = source.at("secretName" if kind == "secret" else "name")
        data = self.lookup.data(SECRET if kind == "secret" else CONFIG_MAP, source, name)
        if data.values is None or data.absent:
            return
        chosen = {item.at("key").text() or "": item for item in source.at("items").items()}
        missing = [key for key in chosen if key not in data.values]
        if missing and not source.at("optional").flag():
            self.fidelity.refused(source.at("items"), f"{name.value} has no {', '.join(missing)}; add it")
            return
        mode = source.at("defaultMode").whole(0, 0o777)
        written: list[str] = []
        for key, text in data.values.items():
            item = chosen.get(key)
            if chosen and item is None:
                continue
            file = key if item is None else item.at("path").text() or key
            own_mode = None if item is None else item.at("mode").whole(0, 0o777)
            written += self._file(file, text, mode if own_mode is None else own_mode, kind, mounts)
        for mount in mounts:
            if _sub_path(mount) and _path(mount) not in written:
                self.fidelity.refused(mount.at("subPath"), f"{name.value} has no such file; mount it whole")
        told = f"written before the command starts, and not renewed: {', '.join(written)}"
        self.fidelity.approximated(source, told if written else "nothing of it is mounted")

    def _file(self, file: str, text: str, mode: int | None, kind: str, mounts: list[Field]) -> list[str]:
        written = []
        for mount in mounts:
            below = _sub_path(mount)
            if below and below != file:
                continue
            path = _path(mount) if below else f"{_path(mount)}/{file}"
            content: str | ShellExpression = text
            if kind == "secret":
                variable = f"STARBURST_FILE_{len(self.storage.secrets)}"
                self.storage.secrets[variable] = text
                content, mode = ShellExpression(f"${{{variable}}}"), 0o400 if mode is None else mode
            self.storage.files.append(File(path, (content,), mode))
            written.append(path)
        return written


def _path(mount: Field) -> str:
    return str(mount.at("mountPath").value).rstrip("/") or "/"


def _sub_path(mount: Field) -> str:
    return (mount.at("subPath").text() or "").strip("/")
