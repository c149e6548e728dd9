"""What a kubelet would start for a Job or Pod, written from Kubernetes' rules and not from the translator.

Sources: Kubernetes documentation, "Define Dependent Environment Variables", "Define a Command and Arguments
for a Container" (with its table of image and manifest), "Configure a Pod to Use a ConfigMap", "Security
Context"; and the order of `makeEnvironment` in pkg/kubelet/kubelet_pods.go: envFrom, then env, last one wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Data of objects by "ConfigMap/name" or "Secret/name".
Objects = Mapping[str, Mapping[str, str]]
_UNITS = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True)
class Image:
    """What an image says of its own process."""

    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str


@dataclass(frozen=True)
class Process:
    """The process of a container; `set_by_pod` are the variables that the manifest sets."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    set_by_pod: frozenset[str] = frozenset()
    #: Numeric ids; None is the image's own.
    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    #: Contents by path, and directories that are empty.
    files: dict[str, str] = field(default_factory=dict)
    empty: tuple[str, ...] = ()


def process_of(manifest: Mapping[str, Any], objects: Objects, image: Image, address: str) -> Process:
    """The process of the first container of a manifest, in a pod with this address."""
    template = manifest["spec"]["template"] if manifest["kind"] == "Job" else manifest
    meta, spec = template["metadata"], template["spec"]
    container = spec["containers"][0]
    fields = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": manifest["metadata"].get("namespace", "default"),
        "metadata.labels": meta.get("labels", {}),
        "metadata.annotations": meta.get("annotations", {}),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.hostIP": address,
    }
    env = _environment(container, objects, fields)
    command = [expand(word, env) for word in container.get("command") or ()]
    args = [expand(word, env) for word in container.get("args") or ()]
    argv = [*command, *args] if command else [*image.entrypoint, *(args or image.cmd)]
    files, empty = _files(container, spec, objects)
    own, pod = container.get("securityContext") or {}, spec.get("securityContext") or {}
    extra = [*pod.get("supplementalGroups", ()), *([pod["fsGroup"]] if "fsGroup" in pod else [])]
    return Process(
        argv=argv,
        env={**image.env, **env},
        cwd=container.get("workingDir") or image.working_dir,
        set_by_pod=frozenset(env),
        user=own.get("runAsUser", pod.get("runAsUser")),
        group=own.get("runAsGroup", pod.get("runAsGroup")),
        groups=tuple(extra),
        files=files,
        empty=empty,
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced: the walk of Kubernetes' expand.go."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out, at = out + text[at], at + 1
        elif text[at + 1] == "(" and ")" in text[at + 2 :]:
            end = text.index(")", at + 2)
            name = text[at + 2 : end]
            out, at = out + env.get(name, f"$({name})"), end + 1
        else:
            out, at = out + ("$" if text[at + 1] == "$" else text[at : at + 2]), at + 2
    return out


def _environment(container: Mapping[str, Any], objects: Objects, fields: Mapping[str, Any]) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        kind = "ConfigMap" if "configMapRef" in source else "Secret"
        reference = source["configMapRef" if kind == "ConfigMap" else "secretRef"]
        data = objects.get(f"{kind}/{reference['name']}")
        assert data is not None or reference.get("optional"), "the container would not start"
        env |= {source.get("prefix", "") + key: value for key, value in (data or {}).items()}
    for variable in container.get("env") or ():
        name, source = variable["name"], variable.get("valueFrom")
        if source is None:
            env[name] = expand(variable.get("value", ""), env)
            continue
        value = _from_elsewhere(source, container, objects, fields)
        if value is not None:
            env[name] = value
    return env


def _from_elsewhere(
    source: Mapping[str, Any], container: Any, objects: Objects, fields: Mapping[str, Any]
) -> str | None:
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if key in source:
            reference = source[key]
            value = objects.get(f"{kind}/{reference['name']}", {}).get(reference["key"])
            assert value is not None or reference.get("optional"), "the container would not start"
            return value
    if "resourceFieldRef" in source:
        return _amount(source["resourceFieldRef"], container["resources"])
    path: str = source["fieldRef"]["fieldPath"]
    if path.endswith("']"):
        kind, _, key = path.partition("['")
        return str(fields[kind].get(key[:-2], ""))
    return str(fields[path])


def _amount(reference: Mapping[str, Any], resources: Mapping[str, Any]) -> str:
    """Divided by the divisor and rounded up; without a request the limit counts."""
    kind, _, name = reference["resource"].partition(".")
    found = resources.get(kind, {}).get(name, resources.get("limits", {}).get(name))
    return str(math.ceil(_number(found) / _number(reference.get("divisor") or "1")))


def _number(text: Any) -> float:
    digits = str(text).rstrip("mkMGiK")
    return float(digits) * _UNITS[str(text)[len(digits) :]]


def _files(container: Any, spec: Any, objects: Objects) -> tuple[dict[str, str], tuple[str, ...]]:
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    files: dict[str, str] = {}
    empty = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes[mount["name"]]
        source = volume.get("configMap") or volume.get("secret")
        if source is None:
            empty.append(mount["mountPath"])
            continue
        kind = "ConfigMap" if "configMap" in volume else "Secret"
        data = objects.get(f"{kind}/{source.get('name') or source.get('secretName')}")
        assert data is not None or source.get("optional"), "the container would not start"
        paths = {item["path"]: item["key"] for item in source.get("items") or ()}
        chosen = {path: data[key] for path, key in paths.items()} if paths and data else dict(data or {})
        if "subPath" in mount:
            files[mount["mountPath"]] = chosen[mount["subPath"]]
        else:
            files |= {f"{mount['mountPath']}/{path}": text for path, text in chosen.items()}
    return files, tuple(empty)
