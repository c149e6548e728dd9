"""The workload of a container: command, environment and working directory."""

from __future__ import annotations

import re

from starburst.domain.images import MEND, is_image
from starburst.domain.job import Workload
from translator.field import Field, Fields
from translator.manifests.expansion import Expansion, names_in
from translator.tasks.downward import judge
from translator.tasks.shell import text_of

CONTAINER = Fields(
    "a container",
    read=(
        "name",
        "image",
        "command",
        "args",
        "env",
        "envFrom",
        "workingDir",
        "resources",
        "securityContext",
    ),
    harmless=(
        "imagePullPolicy",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeMounts",
    ),
    noted={
        "lifecycle": "hooks are not run",
        "livenessProbe": "a command that hangs is not restarted; set activeDeadlineSeconds to end it",
    },
    refused={
        "restartPolicy": "one container per pod; sidecars are not supported yet",
        "restartPolicyRules": "a failed command is not restarted in place; remove it",
        "volumeDevices": "block devices are not supported; use a hostPath volume",
    },
    kept=("lifecycle", "livenessProbe", "restartPolicy", "restartPolicyRules", "volumeDevices"),
)

VARIABLE = Fields("an environment variable", read=("name", "value", "valueFrom"))
_KEY_OF = Fields("a reference", read=("name", "key", "optional"))
_REFERENCES = {
    "configMapKeyRef": _KEY_OF,
    "fieldRef": Fields("a reference", read=("apiVersion", "fieldPath")),
    "fileKeyRef": Fields("a reference", read=("volumeName", "path", "key", "optional")),
    "resourceFieldRef": Fields("a reference", read=("containerName", "resource", "divisor")),
    "secretKeyRef": _KEY_OF,
}
_NAMED_BY = {
    "configMapKeyRef": "name",
    "fieldRef": "fieldPath",
    "fileKeyRef": "path",
    "resourceFieldRef": "resource",
    "secretKeyRef": "name",
}
_SOURCE = Fields("a source of a value", read=tuple(_REFERENCES))
_VARIABLE_NAME = re.compile(r"[^=]+")
#: What variables of Secrets are usually called, other than a shell's own $(date).
_LIKE_A_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
#: What templates and shells have filled in, and no name of an image has.
_FILLED_IN = re.compile(r"[$<>{}]")
_PLACEHOLDER = "is a placeholder; put the name of an image in its place, as envsubst does with $NAME"
#: Variables that are set at the start of a run and therefore cannot be expanded in a manifest.
_AT_RUN_TIME = re.compile(r"JOB_COMPLETION_INDEX|STARBURST_\w+")


def workload(field: Field) -> Workload:
    """Command and arguments, literal environment, working directory and image of a container."""
    if field.at("envFrom").value and not field.goes_along:
        field.at("envFrom").refuse_away(
            "variables from config maps and secrets are not supported; list them under env",
            show=False,
            part="variables of ConfigMaps or Secrets",
        )
    expansion = Expansion()
    env = _environment(field, expansion)
    command = _words(field.at("command"), env, expansion)
    args = _words(field.at("args"), env, expansion)
    image = field.at("image").text()
    if image and not is_image(image):
        field.at("image").refuse(_PLACEHOLDER if _FILLED_IN.search(image) else MEND)
    if field.report.leaves:
        _keep_secrets_out(field)
    in_container = bool(image) and not field.report.on_host
    if args and not command and not (field.report.native and in_container):
        field.at("args").refuse_away(
            "arguments without a command; name the program under command",
            "arguments without a command: only a container knows the image's own",
            show=False,
            part="the image's own command",
        )
    elif not command and field.report.native and field.report.leaves and not in_container:
        field.at("command").stay(
            "the image's own command", "is missing, and only a container knows the image's own"
        )
    return Workload(
        command=command + args if command else (),
        args=() if command else args,
        env=tuple(env.items()),
        working_dir=field.at("workingDir").text(),
        image=image,
    )


def _environment(container: Field, expansion: Expansion) -> dict[str, str]:
    """Literal variables in order; a value may refer to earlier variables, and the last of one name counts.

    Variables with `valueFrom` are excluded: they are resolved at the start of a run (`runtime_values.py`).
    """
    env: dict[str, str] = {}
    for variable in container.at("env").items():
        variable.check(VARIABLE)
        if variable.report.native:
            _check_source(variable.at("valueFrom"))
        name = variable.at("name").text()
        if name is None or not _VARIABLE_NAME.fullmatch(name):
            variable.at("name").refuse("must be the name of a variable, without =")
        elif variable.at("valueFrom").value is not None and variable.goes_along:
            env.pop(name, None)
            source = variable.at("valueFrom")
            carried = any(source.at(kind).value is not None for kind in ("configMapKeyRef", "secretKeyRef"))
            if variable.report.leaves and not carried:
                judge(source, container, _asked(source))
        elif variable.at("valueFrom").value is not None:
            variable.at("valueFrom").refuse_away(
                "values from elsewhere are not supported; write it under value",
                show=False,
                part=f"a value of {_asked(variable.at('valueFrom'))}",
            )
        else:
            env[name] = _expanded(variable.at("value"), env, expansion, name)
    return env


def _check_source(source: Field) -> None:
    """Check the fields of a source of a variable's value."""
    source.check(_SOURCE)
    for kind, fields in _REFERENCES.items():
        source.at(kind).check(fields)
    if isinstance(source.value, dict) and sum(bool(source.at(kind).value) for kind in _REFERENCES) != 1:
        source.refuse(f"must have one of {', '.join(_REFERENCES)}", show=False)


def _asked(source: Field) -> str:
    """What a variable's value is taken from, such as "Secret hub" or "metadata.uid"."""
    for kind, key in _NAMED_BY.items():
        name = source.at(kind).at(key).value
        if name is not None:
            what = {"configMapKeyRef": "ConfigMap ", "secretKeyRef": "Secret "}.get(kind, "")
            return f"{what}{name}"
    return "elsewhere"


def _keep_secrets_out(container: Field) -> None:
    """Refuse values of Secrets in a command line, which every user of an instance can read."""
    sources = _items(container.at("envFrom"))
    otherwise = any(source.at("secretRef").value is not None for source in sources)
    secrets = _made_of_secrets(container, otherwise=otherwise)
    for word in (*_items(container.at("command")), *_items(container.at("args"))):
        for name in names_in(word.value if isinstance(word.value, str) else ""):
            if _is_secret(name, secrets, otherwise=otherwise) and word.goes_along:
                word.stay(
                    f"the Secret's value $({name})",
                    f"$({name}) is a Secret's value, or may be made of one",
                    f"read ${name} in the command",
                )


def _made_of_secrets(container: Field, *, otherwise: bool) -> dict[str, bool]:
    """Whether each variable of `env` has a Secret's value or is made of one; `otherwise`: so may be names
    that `env` does not set.
    """
    found: dict[str, bool] = {}
    for variable in _items(container.at("env")):
        name, source, text = (variable.at(key) for key in ("name", "valueFrom", "value"))
        if source.value is None:
            others = names_in(text.value) if isinstance(text.value, str) else []
            is_secret = any(_is_secret(other, found, otherwise=otherwise) for other in others)
        else:
            is_secret = source.at("secretKeyRef").value is not None
        found[str(name.value)] = is_secret
    return found


def _is_secret(name: str, known: dict[str, bool], *, otherwise: bool) -> bool:
    return known.get(name, otherwise and _LIKE_A_VARIABLE.fullmatch(name) is not None)


def _items(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else []


def _words(field: Field, env: dict[str, str], expansion: Expansion) -> tuple[str, ...]:
    if isinstance(field.value, str):
        field.refuse('must be a list; write ["sh", "-c", "…"] for a shell line')
        return ()
    return tuple(_expanded(word, env, expansion) for word in field.items())


def _expanded(field: Field, env: dict[str, str], expansion: Expansion, variable: str = "") -> str:
    """A text with each `$(NAME)` expanded; `variable` is the name if the text is a variable's value."""
    for name in names_in(field.value if isinstance(field.value, str) else ""):
        if name not in env and _AT_RUN_TIME.fullmatch(name):
            known = f"$({name}) is known only when the job runs"
            field.refuse_away(f"{known}; read ${name} in the command", known, part=f"$({name})")
    word = expansion.expand(field, lambda name: (env[name],) if name in env else None, variable)
    return text_of(word) or ""
