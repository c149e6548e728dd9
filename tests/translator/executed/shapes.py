"""Manifests of the shapes that people write, small enough to run: commands, variables, references, files.

In every text, DIR is the directory of the case; PROBE is a program there that notes what it was given.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The ways by which a job may leave.
TRANSLATED, CONTAINER = "translated", "container"

OBJECTS: dict[str, dict[str, str]] = {
    "ConfigMap/settings": {
        "LR": "0.125",
        "GREETING": 'it\'s "me" $HOME',
        "MODE": "fast",
        "log.level": "info",
    },
    "ConfigMap/other": {"MODE": "slow", "SEED": "7"},
    "ConfigMap/scripts": {"run.sh": "echo \"$1\" 'two'; exit 3\n", "notes.txt": "a\n\ttab\n$(LR) `id`\n"},
    "Secret/login": {"USER_NAME": "ada", "PASSWORD": "p'w\"$x `y` \\z", "MODE": "secret"},
}

#: Arguments that shells, YAML and `$(NAME)` each read in their own way.
TEXTS = (
    *("plain", "", " ", "two words", "it's", '"quoted"', "back\\slash", "$HOME", "${HOME:-x}"),
    *("$(date)", "`date`", "$$", "$$(A)", "$$$(A)", "$(A)", "$(A)$(B)", "$(A", "$(A))"),
    *("$((1+1))", "$()", "$", "a$", "*", "?", "[ab]*", "~", "~/x", "-n", "--", "--lr=$(A)"),
    *("#no comment", "!history", "!!", "a;b", "a&&b", "a|b", ">out", "<in", "line\nbreak"),
    *("tab\tstop", "\n^a^b", "trailing\n", "日本 🚀", "é", "{a,b}", "%d %s", "EOF\n", "\\n", "a=b"),
    *("=", "{{ template }}", "'\"'\"'", "x" * 5000),
)
#: Whole scripts, as the last argument of a shell.
SCRIPTS = (
    'set -euo pipefail\nfor i in 1 2 3; do echo "step $i"; done\nexit 4',
    "echo start && PROBE one 'two three' \"$HOME\" && echo end",
    "cat <<EOF\nvalue: $A\nEOF\ncat <<'EOF'\nraw: $A\nEOF",
    "trap 'echo caught; exit 9' TERM; kill -TERM $$$$; sleep 5",
    "echo $(( 6 * 7 )); echo $(echo nested $(echo deeper))",
    'x=$(A); echo ${x:-unset} ${#x}; export B=2; PROBE "$x" "$B"',
    "echo err >&2; echo out; false",
    "cd /; PROBE; pwd; exit 0",
    "exec PROBE --exec",
    "python3 -I -S -c 'import sys; print(sys.argv[1:]); sys.exit(5)' a 'b c'",
    'if [ -z "${NOT_SET-}" ]; then echo empty; fi; exit 2',
    "printf '%s\\n' \"$@\" | sort -r | head -n 1",
    "kill -KILL $$$$",
    "echo 'single \"double\" inside'; echo \"double 'single' inside\"; echo back\\\\slash; echo \\$HOME",
    "\techo tab indented\n\n\n  echo 'blank lines before'\n# a comment\n",
    "a() { echo \"function $1\"; }; a x; a 'y z'; exit 130",
)
NUMBERS = (0, 1, 2, 7, 42, 126, 128, 130, 137, 143, 255)


@dataclass(frozen=True)
class Shape:
    """A manifest, and the ways by which it does not leave: refused there, or told to be another thing."""

    name: str
    manifest: dict[str, Any]
    not_by: frozenset[str] = frozenset()

    def at(self, directory: Path) -> dict[str, Any]:
        """The manifest with the paths of a directory in it."""
        text = json.dumps(self.manifest).replace("PROBE", f"{directory}/probe").replace("DIR", str(directory))
        found: dict[str, Any] = json.loads(text)
        return found


def shapes() -> list[Shape]:
    """All shapes, in an order that does not change."""
    return [*_arguments(), *_scripts(), *_exits(), *_variables(), *_references(), *_files(), *_users()]


def _job(name: str, *not_by: str, of: str = "Job", pod: Any = (), meta: Any = (), **container: Any) -> Shape:
    body: dict[str, Any] = {"name": "main", "image": "local/probe:1", "command": ["PROBE"], **container}
    resources = {"limits": {"cpu": "1500m", "memory": "2Gi"}, "requests": {"cpu": "500m"}}
    body = {key: value for key, value in {"resources": resources, **body}.items() if value is not None}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [body], **dict(pod)}
    metadata = {"name": "case", "namespace": "lab", **dict(meta)}
    if of == "Pod":
        return Shape(name, _made("v1", "Pod", metadata, spec), frozenset(not_by))
    template = {"metadata": {"labels": {"team": "red"}, "annotations": {"note": "it's $HOME"}}, "spec": spec}
    job = {"backoffLimit": 0, "template": template}
    return Shape(name, _made("batch/v1", "Job", metadata, job), frozenset(not_by))


def _made(version: str, kind: str, metadata: Any, spec: Any) -> dict[str, Any]:
    return copy.deepcopy({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


_A_AND_B = [{"name": "A", "value": "first"}, {"name": "B", "value": "$(A)/second"}]


def _arguments() -> Iterator[Shape]:
    for number, text in enumerate(TEXTS):
        yield _job(f"argument-{number}", args=[text, "end"], env=_A_AND_B)
        if number % 3 == 0:
            yield _job(f"command-{number}", of="Pod", command=["PROBE", text, text], env=_A_AND_B)
    yield _job("no-arguments")
    yield _job("args-for-the-image", TRANSLATED, command=None, args=["--epochs", "$(A)"], env=_A_AND_B)
    yield _job("the-image-as-it-is", TRANSLATED, command=None)
    yield _job("many-arguments", args=[str(number) for number in range(400)])


def _scripts() -> Iterator[Shape]:
    for number, text in enumerate(SCRIPTS):
        yield _job(f"script-{number}", command=["sh", "-c"], args=[text, "sh", "x", "y z"], env=_A_AND_B)
        if number % 4 == 0:
            yield _job(
                f"bash-{number}", command=["/bin/bash", "-c", text], env=_A_AND_B, workingDir="DIR/work"
            )


def _exits() -> Iterator[Shape]:
    for number in NUMBERS:
        yield _job(f"exit-{number}", of="Pod", command=["sh", "-c", f"exit {number}"])


def _variables() -> Iterator[Shape]:
    for number, text in enumerate(TEXTS):
        if number % 2 == 0:
            yield _job(f"variable-{number}", env=[*_A_AND_B, {"name": "C", "value": text}], args=["$(C)"])
    twice = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "$(A)2"}]
    yield _job("a-name-twice", env=twice, args=["$(A)$(B)"])
    yield _job("before-it-is-set", env=[{"name": "B", "value": "$(A)"}, {"name": "A", "value": "x"}])
    yield _job("without-a-value", env=[{"name": "A"}, {"name": "B", "value": "<$(A)>"}])
    odd = [
        {"name": name, "value": f"v {name}"} for name in ("dotted.name", "dash-name", "_x", "lower", "UID")
    ]
    yield _job("odd-names", env=odd, args=["$(dotted.name)", "$(dash-name)"])
    yield _job("home-and-path", env=[{"name": "HOME", "value": "/nowhere"}, {"name": "LANG", "value": "C"}])
    yield _job("working-dir", workingDir="DIR/a b/$(A)", env=_A_AND_B)


def _of(kind: str, **reference: Any) -> dict[str, Any]:
    return {"valueFrom": {kind: reference}}


def _references() -> Iterator[Shape]:
    settings, other, login = ({"name": name} for name in ("settings", "other", "login"))
    plain = [{"configMapRef": settings}, {"configMapRef": other}]
    yield _job("env-from", envFrom=plain, args=["$(LR)", "$(MODE)", "$(log.level)"])
    yield _job("env-from-turned", envFrom=plain[::-1], args=["$(MODE)"])
    yield _job("env-from-prefix", envFrom=[{"configMapRef": settings, "prefix": "P_"}], args=["$(P_LR)"])
    yield _job("env-over-env-from", envFrom=plain, env=[{"name": "MODE", "value": "own $(MODE)"}])
    yield _job("no-such-map", envFrom=[{"configMapRef": {"name": "gone", "optional": True}}])
    yield _job("secret-env-from", envFrom=[{"secretRef": login}])
    yield _job("secret-then-map", envFrom=[{"secretRef": login}, {"configMapRef": other}])
    yield _job("map-then-secret", envFrom=[{"configMapRef": other}, {"secretRef": login}])
    password = {"name": "P", **_of("secretKeyRef", name="login", key="PASSWORD")}
    yield _job("secret", env=[password, {"name": "URL", "value": "db://$(P)@host"}])
    own = [password, {"name": "URL", "value": "$(P)"}, {"name": "P", "value": "no longer $(P)"}]
    yield _job("secret-set-anew", env=[*own, {"name": "LAST", "value": "$(P)/$(URL)"}])
    mode = {"name": "MODE", "value": "own $(MODE)"}
    yield _job("env-over-a-secret", envFrom=[{"secretRef": login}], env=[mode, mode])
    again = {"name": "P", **_of("secretKeyRef", name="login", key="USER_NAME")}
    yield _job("secret-over-a-secret", env=[password, {"name": "URL", "value": "$(P)"}, again])
    yield _job("secret-in-arguments", CONTAINER, env=[password], args=["$(P)"])
    of_it = {"name": "U", "value": "$(P)"}
    yield _job("secret-within-arguments", CONTAINER, env=[password, of_it], args=["$(U)"])
    yield _job("secrets-in-arguments", CONTAINER, envFrom=[{"secretRef": login}], args=["--to=$(USER_NAME)"])
    dated = {"command": ["sh", "-c", "echo $(echo date)"], "envFrom": [{"secretRef": login}]}
    yield _job("secrets-beside-a-shells-own", **dated)
    gone = _of("secretKeyRef", name="login", key="gone", optional=True)
    yield _job("no-such-key", CONTAINER, env=[{"name": "P", **gone}], args=["$(P)"])
    kept = [
        {"name": "PASSWORD", **gone},
        {"name": "MODE", **_of("configMapKeyRef", name="x", key="y", optional=True)},
    ]
    yield _job("optional-leaves-env-from", envFrom=[{"secretRef": login}], env=kept)
    yield _job("optional-leaves-a-literal", env=[{"name": "P", "value": "own"}, {"name": "P", **gone}])
    yield _job(
        "map-key",
        env=[{"name": "G", **_of("configMapKeyRef", name="settings", key="GREETING")}],
        args=["$(G)"],
    )
    fields = (
        "metadata.namespace",
        "spec.serviceAccountName",
        "metadata.labels['team']",
        "metadata.labels['none']",
        "metadata.annotations['note']",
    )
    env = [{"name": f"F{n}", **_of("fieldRef", fieldPath=path)} for n, path in enumerate(fields)]
    yield _job("fields", env=env, args=["$(F0)", "$(F4)"], pod={"serviceAccountName": "trainer"})
    name = {"name": "N", **_of("fieldRef", fieldPath="metadata.name")}
    yield _job("name-of-a-pod", of="Pod", env=[name], args=["$(N)"], meta={"labels": {"team": "blue"}})
    amounts = (("limits.cpu", None), ("limits.cpu", "1m"), ("requests.cpu", "1m"), ("limits.memory", "1Mi"))
    env = [
        {"name": f"R{n}", **_of("resourceFieldRef", resource=resource, **({"divisor": by} if by else {}))}
        for n, (resource, by) in enumerate((*amounts, ("requests.memory", "1Gi")))
    ]
    yield _job("amounts", env=env, args=["$(R0)", "$(R3)"])


def _mounting(name: str, volume: dict[str, Any], path: str, *not_by: str, **mount: Any) -> Shape:
    mounts = [{"name": "v", "mountPath": path, **mount}]
    return _job(name, *not_by, volumeMounts=mounts, pod={"volumes": [{"name": "v", **volume}]})


def _files() -> Iterator[Shape]:
    scripts, login = {"configMap": {"name": "scripts"}}, {"secret": {"secretName": "login"}}
    yield _mounting("config-map", scripts, "DIR/etc")
    yield _mounting("one-file", scripts, "DIR/bin/run.sh", subPath="run.sh")
    chosen = {"name": "scripts", "items": [{"key": "run.sh", "path": "deep/er/go.sh"}]}
    yield _mounting("items", {"configMap": chosen}, "DIR/etc")
    yield _mounting("secret-files", login, "DIR/keys")
    gone = {"configMap": {"name": "gone", "optional": True}}
    yield _mounting("optional-map", gone, "DIR/etc")
    yield _mounting("empty-dir", {"emptyDir": {}}, "DIR/scratch")
    yield _mounting("empty-dir-in-memory", {"emptyDir": {"medium": "Memory"}}, "DIR/scratch")
    volumes = [{"name": "s", "configMap": {"name": "scripts"}}]
    mounts = [{"name": "s", "mountPath": "DIR/scripts"}]
    run = {"command": ["sh", "DIR/scripts/run.sh", "it's"], "volumeMounts": mounts}
    yield _job("runs-a-mounted-script", pod={"volumes": volumes}, **run)


def _users() -> Iterator[Shape]:
    ids = {"runAsUser": 1234, "runAsGroup": 2345}
    yield _job("user", TRANSLATED, securityContext=ids, command=["id", "-u"])
    yield _job("user-of-the-pod", TRANSLATED, pod={"securityContext": ids}, command=["id", "-g"])
    over = {"securityContext": {"runAsUser": 3456}, "pod": {"securityContext": {**ids, "fsGroup": 77}}}
    yield _job("user-over-the-pods", TRANSLATED, command=["id", "-u"], **over)
    groups = {"supplementalGroups": [88, 99], "fsGroup": 77, "runAsUser": 1234, "runAsGroup": 1234}
    yield _job("groups", TRANSLATED, pod={"securityContext": groups}, command=["id", "-G"])
