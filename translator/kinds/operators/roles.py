"""The roles of an operator's job, such as master and worker, as the tasks of one gang.

All tasks of a Job start from one pod template. So what differs between roles (command, arguments, plain
variables) is chosen by a shell in each task, by its rank; roles that differ in more are refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from starburst.domain.resources import Resources
from translator.field import Field, ManifestReport
from translator.kinds.read_kind import ReadKind
from translator.manifests.effective_requests import pod_resources
from translator.manifests.expansion import names_in
from translator.manifests.hints import PREFIX, refuse_hints
from translator.manifests.manifest import MAX_TASKS
from translator.tasks.container import VARIABLE

#: What tasks of one template may differ in: a shell chooses it, or it has no effect on a run.
_CHOSEN = ("args", "command", "env", "imagePullPolicy", "name", "ports", "resources", "stdin", "tty")
#: What tells a server's health: dropped where it is not that of all tasks.
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
#: Of a pod spec: the roles' restart policies become the job's retries.
_UNCOMPARED = ("containers", "restartPolicy")
_UNORDERED = ("imagePullSecrets", "tolerations", "volumeMounts", "volumes")
#: Kubernetes expands $(NAME); a shell's own $( has to be written with two dollars.
_EXPANDED = re.compile(r"\$(?=\()")
#: Variables that lines of sh set, and names that a shell takes.
_SET, _SHELL_NAME = re.compile(r"\b([A-Z][A-Z0-9_]*)="), re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: References to variables in words of a manifest, and dollars that begin none.
_REFERENCE = re.compile(rf"\$\$|\$\(({_SHELL_NAME.pattern})\)")
_ELASTIC = f"{PREFIX}elastic"
_RANK = 'starburst_rank="${JOB_COMPLETION_INDEX:-${STARBURST_RANK:-0}}"\n'
#: A task that no role has must not succeed with nothing done.
_END = """\
else
  echo "starburst: no role has a task of rank $starburst_rank" >&2
  exit 127
fi
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class TaskRole:
    """Tasks with one pod template; `lines` of sh set variables of each by `$starburst_index`, from 0."""

    name: str
    replicas: int
    template: Field
    lines: str = ""
    #: Of how many of its tasks, the first ones, the success is that of the job; all others are ended then.
    deciding: int = 0

    @property
    def container(self) -> Field:
        """The container of its program: the first."""
        return _first(self.template)

    @property
    def words(self) -> tuple[str, ...]:
        """Command and arguments as far as they are given."""
        lists = (self.container.at(key).value for key in ("command", "args"))
        found = (word for words in lists if isinstance(words, list) for word in words)
        return tuple("" if word is None else str(word) for word in found)

    @property
    def has_command(self) -> bool:
        """Whether the program is given, not left to the image."""
        return bool(self.container.at("command").value)

    @property
    def is_marked(self) -> bool:
        """Whether its words or variables have expressions of the shell."""
        return "\0" in "".join(self.words) or "\\u0000" in _key(self)


@dataclass(frozen=True, slots=True)
class RoleJob:
    """A job of several roles."""

    document: Field
    roles: Sequence[TaskRole]
    #: Lines of sh that each task runs before those of its role.
    lines: str = ""
    #: Fields of the Job's spec.
    spec: Mapping[str, Any] = field(default_factory=lambda: {"backoffLimit": 0})
    #: Variables that a program may do without, if no command is given before which they could be set.
    optional: str = ""
    #: Whether it can run with its first tasks only, and with how many its user says it does; 0: unsaid.
    scales: bool = False
    least_tasks: int = 0

    def read(self) -> ReadKind:
        """The gang as a Job; problems and notes go to the document's report."""
        size = sum(role.replicas for role in self.roles)
        if not 1 <= size <= MAX_TASKS:
            self.document.at("spec").refuse(
                f"has {size} tasks in all; a gang has 1 to {MAX_TASKS}", show=False
            )
        whole = [_is_whole(role.template) for role in self.roles if role.template.value is not None]
        if self.document.report.errors or not whole or not all(whole):
            return ReadKind({})
        needs = [_resources(role) for role in self.roles]
        largest = max(range(len(self.roles)), key=lambda at: _size(needs[at]))
        base = self.roles[largest]
        for role in self.roles:
            if role is not base:  # whose problems are found when the Job is read
                pod_resources(role.template.at("spec"))
        self._compare(base)
        template = copy.deepcopy(base.template.value)
        assert isinstance(template, dict)  # it is whole
        self._note_restarts(role.template.at("spec").at("restartPolicy") for role in self.roles)
        template["spec"]["restartPolicy"] = "Never"
        self._choose(template)
        spec: dict[str, Any] = {**self.spec, "template": template}
        if size > 1:
            spec |= {"parallelism": size, "completions": size, "completionMode": "Indexed"}
            spec |= self._success(size)
        metadata = self._metadata(size)
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        origins = {"spec.template": base.template.path, **_env_origins(template, base)}
        return ReadKind(manifest, origins, tasks=self._tasks(needs, base))

    def _note_restarts(self, policies: Iterable[Field]) -> None:
        """Say that a task is not restarted alone, if the job is not run again either."""
        restarting = [each for each in policies if each.value in ("Always", "OnFailure")]
        if restarting and not self.spec["backoffLimit"]:
            restarting[0].note("a task is not restarted by itself; one that fails ends the job")

    def _metadata(self, size: int) -> dict[str, Any]:
        """The document's, with the annotation that says whether it is elastic if it can be."""
        entries = self.document.at("metadata").entries()
        found: dict[str, Any] = {key: each.value for key, each in entries.items()}
        asked = self.document.at("metadata").at("annotations").at(_ELASTIC)
        if asked.value is not None and not self.scales:
            asked.note("is not kept: its tasks have parts of their own, so it starts again as a whole")
            found["annotations"] = {
                key: value for key, value in found["annotations"].items() if key != _ELASTIC
            }
        elif asked.value is None and 0 < self.least_tasks < size:
            known = found.get("annotations") or {}
            if isinstance(known, dict):  # else the Job's reader refuses it
                found["annotations"] = {**known, _ELASTIC: str(self.least_tasks)}
        return found

    def _tasks(self, needs: Sequence[Resources], base: TaskRole) -> tuple[Resources, ...]:
        """What each task asks for; () if that is the same for all."""
        if len(set(needs)) == 1:
            return ()
        report = self.document.report
        if report.native and len({need.gpus for need in needs}) > 1:
            for role, need in zip(self.roles, needs, strict=True):
                if role is not base:
                    role.container.at("resources").refuse(
                        f"asks for {need.gpus} GPUs, {base.name} for more: a Kubernetes cluster runs all "
                        "tasks of a job from one pod template; ask for the same in all, or submit them apart",
                        show=False,
                    )
        elif report.native:
            base.container.at("resources").note(
                f"is what each task gets on the cluster, not those of {base.name} only"
            )
            return ()
        return tuple(need for role, need in zip(self.roles, needs, strict=True) for _ in range(role.replicas))

    def _success(self, size: int) -> dict[str, Any]:
        """The policy by which the tasks that decide end the job; {} if all do."""
        deciding, rank = list[str](), 0
        for role in self.roles:
            if role.deciding:
                deciding.append(f"{rank}-{rank + role.deciding - 1}" if role.deciding > 1 else str(rank))
            rank += role.replicas
        if not deciding or sum(role.deciding for role in self.roles) == size:
            return {}
        return {"successPolicy": {"rules": [{"succeededIndexes": ",".join(deciding)}]}}

    # --- one template ------------------------------------------------------------------------------------

    def _compare(self, base: TaskRole) -> None:
        """Refuse what differs between the roles and cannot be chosen by a shell."""
        for role in self.roles:
            if role is base:
                continue
            ours, theirs = base.template.at("spec"), role.template.at("spec")
            metadata, kept = role.template.at("metadata"), base.template.at("metadata")
            refuse_hints(metadata)
            for key in _different(metadata.value, kept.value or {}, ("name", "creationTimestamp")):
                metadata.at(key).note(f"is not used: all tasks have that of {base.name}")
            pairs = [
                (ours, theirs, _UNCOMPARED),
                (_first(base.template), role.container, (*_CHOSEN, *_PROBES)),
            ]
            pairs += zip(_beside(ours), _beside(theirs), [()] * len(_beside(ours)), strict=False)
            for one, other, apart in pairs:
                for key in _different(one.value, other.value, apart):
                    other.at(key).refuse(
                        f"differs from that of {base.name}: all tasks of a job start from one pod template; "
                        "make them equal, or submit the roles one by one",
                        show=False,
                    )
            if len(_beside(ours)) != len(_beside(theirs)):
                theirs.at("containers").refuse(
                    f"are more or fewer than those of {base.name}; make them equal"
                )

    def _choose(self, template: dict[str, Any]) -> None:
        """Put the shell that chooses by rank before the program, if there is anything to choose or set."""
        alike = (
            len({role.words for role in self.roles}) == 1 and len({_key(role) for role in self.roles}) == 1
        )
        lines = self.lines or any(role.lines or role.is_marked for role in self.roles)
        if alike and not lines:
            return
        container = template["spec"]["containers"][0]
        self._drop_probes(container)
        for role in self.roles:
            _check_program(role.container)
        without = [role for role in self.roles if not role.has_command and role.replicas]
        if without and alike and self.optional and not without[0].is_marked:
            without[0].container.at("command").note(
                f"is missing, so {self.optional} are not set: there is no program to set them before; "
                "MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK are"
            )
            return
        if without:
            without[0].container.at("command").refuse(
                "is missing; write out the program of the image: the variables of its role are set before it"
            )
            return
        common = _common_env(self.roles)
        given = container.get("env") or []
        container["env"] = [entry for entry in given if entry in common] if isinstance(given, list) else given
        container.pop("args", None)
        single = sum(role.replicas for role in self.roles) == 1  # whose index is its job's, in an array
        rank = "starburst_rank=0\n" if single else _RANK
        script = rank + self.lines + "".join(self._branches(common)) + _END
        container["command"] = ["/bin/sh", "-c", script]

    def _drop_probes(self, container: dict[str, Any]) -> None:
        """Leave out the probes that are not those of all roles."""
        for key in _PROBES:
            if len({json.dumps(role.container.at(key).value, sort_keys=True) for role in self.roles}) > 1:
                container.pop(key, None)
                self.document.at("spec").note(f"{key} is of some roles only, and left out")

    def _branches(self, common: Sequence[Any]) -> Iterator[str]:
        """For each role: its index, its variables, its program."""
        rank = 0
        for number, role in enumerate(role for role in self.roles if role.replicas):
            known = {*_SET.findall(self.lines + role.lines), *_in_clear(common)}
            test = f'{"elif" if number else "if"} [ "$starburst_rank" -lt {rank + role.replicas} ]; then\n'
            index = own_text(f"starburst_index=$((starburst_rank - {rank}))\n")
            yield test + index + role.lines + "".join(_exports(role, common, known))
            yield f"set -- {' '.join(quoted(word, known) for word in role.words)}\n"
            rank += role.replicas


def marked(expression: str) -> str:
    """An expression of the shell, such as $MASTER_ADDR, within a word or a plain variable of a template."""
    return f"\0{expression}\0" if expression else ""


def quoted(word: str, known: Collection[str] = ()) -> str:
    """A word in single quotes; outside of them its marked expressions, and `$(NAME)` of known variables."""
    word = _REFERENCE.sub(lambda found: marked(f"${found[1]}") if found[1] in known else found[0], word)
    return re.sub("\0([^\0]*)\0", lambda found: f"'\"{own_text(found[1])}\"'", quote(word))


def own_text(text: str) -> str:
    """Lines of sh as a manifest holds them, where Kubernetes must not take $( for a reference."""
    return _EXPANDED.sub("$$", text)


def _check_program(container: Field) -> None:
    """Refuse words and variables of a role that are none: the Job's reader sees what all roles have only."""
    for key in ("command", "args"):
        for word in container.at(key).items():
            word.text()
    for entry in container.at("env").items():
        entry.check(VARIABLE)
        entry.at("value").text()


def _exports(role: TaskRole, common: Sequence[Any], known: set[str]) -> Iterator[str]:
    """The variables that are of one role only; each is then `known` to what comes after it."""
    for entry in role.container.at("env").items():
        if entry.value in common or not isinstance(entry.value, dict):
            continue
        if entry.value.get("valueFrom") is not None:
            entry.at("valueFrom").refuse("is of one role only; give the variable to all roles", show=False)
        name, value = _name(entry.value), str(entry.value.get("value") or "")
        if not _SHELL_NAME.fullmatch(name):
            entry.at("name").refuse(
                "is no name for a shell, which sets what differs between roles; give it to all roles"
            )
        yield f"export {name}={quoted(value, known)}\n"
        known.add(name)


def _common_env(roles: Sequence[TaskRole]) -> list[Any]:
    """The variables that all roles have, but for those made of others, which a shell sets."""
    lists = [[entry.value for entry in role.container.at("env").items()] for role in roles]
    apart = {_name(each) for own in lists for each in own if not all(each in other for other in lists)}
    common = []
    for entry in lists[0]:
        value = str(entry.get("value") or "") if isinstance(entry, dict) else ""
        if "\0" in value or apart & {_name(entry), *names_in(value)}:
            apart.add(_name(entry))
        else:
            common.append(entry)
    return common


def _in_clear(common: Sequence[Any]) -> Iterator[str]:
    """The names of those that a shell may put into words, whatever quotes are in their values: no Secret's.

    Where the others are in words they stay $(NAME), and what reads the Job judges whether it may leave.
    """
    for entry in common:
        if not isinstance(entry, dict) or not _SHELL_NAME.fullmatch(_name(entry)):
            continue
        source = entry.get("valueFrom")
        secret = isinstance(source, dict) and source.get("secretKeyRef") is not None
        if not secret and not names_in(str(entry.get("value") or "")):
            yield _name(entry)


def _name(entry: object) -> str:
    return str(entry.get("name") or "") if isinstance(entry, dict) else ""


def _env_origins(template: Mapping[str, Any], base: TaskRole) -> dict[str, str]:
    """Where the variables that are left in the Job's template are in the role's."""
    here, there = "spec.template.spec.containers[0].env", f"{base.container.path}.env"
    theirs = [each.value for each in base.container.at("env").items()]
    ours = template["spec"]["containers"][0].get("env")
    kept = ours if isinstance(ours, list) else []
    return {
        f"{here}[{at}]": f"{there}[{theirs.index(each)}]" for at, each in enumerate(kept) if each in theirs
    }


def _key(role: TaskRole) -> str:
    return json.dumps(role.container.at("env").value, sort_keys=True, default=str)


def _different(one: object, other: object, apart: Sequence[str]) -> list[str]:
    """The keys in which two mappings differ; absent and empty are equal."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return []
    keys = [key for key in {**one, **other} if key not in apart]
    return [key for key in keys if _in_order(key, one.get(key)) != _in_order(key, other.get(key))]


def _in_order(key: str, value: object) -> object:
    """A value to compare: lists whose order says nothing in one order, empty ones as absent."""
    if key in _UNORDERED and isinstance(value, list):
        value = sorted(value, key=lambda each: json.dumps(each, sort_keys=True, default=str))
    return value or None


def _is_whole(template: Field) -> bool:
    """Whether a pod template has containers; else it is refused."""
    spec = template.at("spec") if template.entries() else template
    containers = spec.at("containers")
    if not spec.entries() or not containers.items():
        containers.refuse("is missing; write the container of the program", show=False)
        return False
    for each in containers.items():
        if not each.entries() and isinstance(each.value, (dict, type(None))):
            each.refuse("is empty; write the container of the program", show=False)
    return not template.report.errors


def _first(template: Field) -> Field:
    containers = template.at("spec").at("containers").items()
    return containers[0] if containers else template.at("spec").at("containers")


def _beside(spec: Field) -> list[Field]:
    return spec.at("containers").items()[1:]


def _resources(role: TaskRole) -> Resources:
    """The requests of one task; problems are found again when the Job is read."""
    spec = role.template.at("spec")
    return pod_resources(Field(spec.value, spec.path, ManifestReport("", 0)))


def _size(need: Resources) -> tuple[float, ...]:
    return need.gpus, need.cpus, need.memory_mib
