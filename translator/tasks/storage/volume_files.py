"""The files of a pod's volumes whose contents come from its cluster or its manifest.

These are the types configMap, secret, downwardAPI, and projected, which joins them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from translator.fidelity import STAY, FidelityLevel
from translator.field import Field
from translator.manifests.references import CONFIG_MAP, SECRET, Lookup
from translator.tasks.downward import Downward, judge
from translator.tasks.shell import ShellWord

#: Types of volumes that consist of such files, and the sources of a projected one.
FILES = ("configMap", "secret", "downwardAPI", "projected")
_SOURCES = FILES[:3]
#: What `metadata` has that a downward file may hold as a whole: one line per entry.
_MAPS = ("metadata.labels", "metadata.annotations")


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """A file of a volume, to be written at the start of a run."""

    #: The number of the volume in the pod.
    volume: int
    #: Path within the volume.
    path: str
    content: ShellWord
    #: Permissions; None is the default.
    mode: int | None
    secret: bool


def judge_files(source: Field, kind: str, container: Field) -> None:
    """Keep a job on its cluster if a volume of a type in FILES has parts that no machine can be given."""
    for part, what in _parts(source, kind):
        if what not in _SOURCES:
            part.stay(f"the projected {what or 'volume'}", "exists in the cluster alone")
        elif part.at("items").value is not None:
            for item in part.at("items").items():
                if not _is_path(item.at("path").text() or ""):
                    item.at("path").refuse("must be a relative path without .. and without a colon")
                if what == "downwardAPI" and item.at("fieldRef").at("fieldPath").value not in _MAPS:
                    amount = item.at("resourceFieldRef").at("resource").value
                    judge(item, container, str(item.at("fieldRef").at("fieldPath").value or amount))


def read_files(spec: Field, container: Field, lookup: Lookup, downward: Downward) -> list[VolumeFile]:
    """The files of all volumes that the container mounts; the lookup's report says what is missing."""
    mounted = {mount.at("name").value for mount in container.at("volumeMounts").items()}
    found: dict[tuple[int, str], VolumeFile] = {}
    for number, volume in enumerate(spec.at("volumes").items()):
        for kind in FILES:
            source = volume.at(kind)
            if source.value is None or volume.at("name").value not in mounted:
                continue
            mode = source.at("defaultMode").whole(0, 0o777)
            for part, what in _parts(source, kind):
                for path, content, own_mode in _contents(part, what, lookup, downward):
                    file_mode = mode if own_mode is None else own_mode
                    file = VolumeFile(number, path, content, file_mode, what == "secret")
                    found[number, path] = file  # of two for one path the later counts, as on a node
    return list(found.values())


def _parts(source: Field, kind: str) -> Iterator[tuple[Field, str]]:
    """The sources of a volume with their types; of a projected one there may be several."""
    if kind != "projected":
        yield source, kind
        return
    for part in source.at("sources").items():
        for what, found in part.entries().items():
            if found.value is not None:
                yield found, what


def _contents(
    source: Field, kind: str, lookup: Lookup, downward: Downward
) -> Iterator[tuple[str, ShellWord, int | None]]:
    """Path, content and mode of each file of a source."""
    if kind == "downwardAPI":
        for item in source.at("items").items():
            word = _downward(item, lookup, downward)
            if word is not None:
                yield item.at("path").text() or "", word, item.at("mode").whole(0, 0o777)
        return
    # A Secret has its name in `secretName` as a volume, and in `name` within a projected one.
    name = source.at("secretName" if source.at("secretName").value is not None else "name")
    data = lookup.data(SECRET if kind == "secret" else CONFIG_MAP, source, name)
    if data.values is None:
        return
    if not source.at("items").value:  # an empty list chooses all, too
        yield from ((key, (text,), None) for key, text in data.values.items())
        return
    for item in source.at("items").items():
        key = item.at("key").text() or ""
        if key in data.values:
            yield item.at("path").text() or key, (data.values[key],), item.at("mode").whole(0, 0o777)
        elif not source.at("optional").flag():
            lookup.fidelity.refused(item, f"{name.value} has no {key}; add it, or {STAY}")


def _downward(item: Field, lookup: Lookup, downward: Downward) -> ShellWord | None:
    path = item.at("fieldRef").at("fieldPath").text()
    if path in _MAPS:
        pairs = downward.metadata.at(path.partition(".")[2]).entries().items()
        return ("\n".join(f"{key}={_quoted(str(found.value))}" for key, found in sorted(pairs)),)
    known = downward.read(item)
    if known.verdict is FidelityLevel.REFUSED:
        lookup.fidelity.refused(item, known.text)
        return None
    return known.word


def _quoted(text: str) -> str:
    """A value as a kubelet writes it: in double quotes, with escapes of C."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def _is_path(path: str) -> bool:
    return bool(path) and not path.startswith("/") and ".." not in path.split("/") and ":" not in path
