"""The environment of a container in a SkyPilot task: literals, secrets, and values known at run time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from translator.fidelity import STAY, Fidelity, FidelityLevel
from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.expansion import Expansion
from translator.manifests.references import CONFIG_MAP, SECRET, Lookup
from translator.tasks.downward import Downward
from translator.tasks.shell import ShellExpression, ShellWord, is_changed, text_of

#: Variables that $(NAME) may refer to although no manifest sets them: they are set at the start of a run.
RANK = "JOB_COMPLETION_INDEX"
_SET_BY_STARBURST = re.compile(r"\$\((STARBURST_\w+)\)")

#: Names that SkyPilot, POSIX and bash accept for a variable.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Names that are read-only or special in bash (its manual, "Bash Variables"), or overwritten by Ray.
_TAKEN = frozenset(
    (
        *("_", "BASHOPTS", "BASHPID", "COLUMNS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID"),
        *("FUNCNAME", "GROUPS", "HISTCMD", "IFS", "LINENO", "LINES", "MAILCHECK", "OLDPWD"),
        *("OMP_NUM_THREADS", "OPTARG", "OPTERR", "OPTIND", "POSIXLY_CORRECT", "PPID", "PROMPT_COMMAND"),
        *("PS0", "PS1", "PS2", "PS3", "PS4", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM"),
        *("TMOUT", "UID"),
    )
)
_GPUS = "CUDA_VISIBLE_DEVICES"
#: Names of Secrets' values that other variables are made of, after their own variables were set anew.
_EARLIER = "STARBURST_EARLIER_"


@dataclass(slots=True)
class Environment:
    """Variables of a container by name, in the order in which they are set."""

    #: The value of each `$(NAME)`, also of variables that the run sets.
    values: dict[str, ShellWord]
    #: The names that the container's manifest sets, in order.
    names: dict[str, None] = field(default_factory=dict)
    #: Values of Secrets by variable; None if the Secret could not be looked up.
    secrets: dict[str, str | None] = field(default_factory=dict, repr=False)
    #: Expands texts, within the size limits of environment and command line.
    expansion: Expansion = field(default_factory=Expansion)
    #: A shell of SkyPilot's sets them, on a machine that tells a task its GPUs; else a process is given them.
    by_shell: bool = True

    def put(self, name: str, word: ShellWord) -> None:
        """Set a variable, as the last in order; values that were made of an earlier one keep that one."""
        if name in self.secrets:
            word = self._set_aside(name, word)
        self.names.pop(name, None)
        self.names[name] = None
        self.values[name] = word

    def put_secret(self, name: str, value: str | None) -> None:
        """Set a variable to the value of a Secret; other variables refer to it by a shell expression."""
        self.put(name, ())
        self.values[name] = (_reference(name),)
        self.secrets[name] = value

    def _set_aside(self, name: str, word: ShellWord) -> ShellWord:
        """Forget a Secret's value whose variable is set anew to `word`, which is returned; if it or another
        variable refers to that value, it goes on under a name of its own.
        """
        earlier, value = _reference(name), self.secrets.pop(name)
        words = {**{key: found for key, found in self.values.items() if key != name}, name: word}
        if not any(earlier in found for found in words.values()):
            return word
        count = sum(key.startswith(_EARLIER) for key in self.secrets)
        self.secrets[f"{_EARLIER}{count}"] = value
        now = _reference(f"{_EARLIER}{count}")
        self.values = {
            key: tuple(now if part == earlier else part for part in found) for key, found in words.items()
        }
        return self.values[name]

    @property
    def envs(self) -> dict[str, str]:
        """The `envs` of a task."""
        plain = [name for name in self.names if not _is_special(name) and not _is_exported(self.values[name])]
        return {name: text_of(self.values[name]) or "" for name in plain}

    @property
    def exports(self) -> tuple[tuple[str, ShellWord], ...]:
        """Variables that the run script exports: values that are known at run time only, or that SkyPilot's
        shell would change.
        """
        apart = {*self.envs, *self.secrets}
        return tuple(
            (name, self.values[name]) for name in self.names if name not in apart and not _is_special(name)
        )

    @property
    def beside(self) -> tuple[tuple[str, ShellWord], ...]:
        """Variables that a shell cannot hold or would change."""
        return tuple((name, self.values[name]) for name in self.names if _is_special(name))


def read_environment(
    container: Field,
    downward: Downward,
    lookup: Lookup,
    runtime: Mapping[str, ShellWord],
    *,
    by_shell: bool = True,
) -> Environment:
    """`env` and `envFrom` of a container; `runtime` are variables that the run itself sets."""
    found = Environment(dict(runtime), by_shell=by_shell)
    for source in container.at("envFrom").items():
        _all_of(source, found, lookup)
    for variable in container.at("env").items():
        name = variable.at("name").text() or ""
        if name == _GPUS and by_shell:
            lookup.fidelity.dropped(variable, "a task is told there which GPUs are its own")
        elif variable.at("valueFrom").value is None:
            _literal(variable, name, found, lookup.fidelity)
        else:
            _from_elsewhere(variable.at("valueFrom"), name, found, downward, lookup)
    return found


def expanded(text: Field, found: Environment, fidelity: Fidelity, variable: str = "") -> ShellWord:
    """A text with each `$(NAME)` expanded; `variable` is the name if the text is a variable's value."""
    written = text.text() or ""
    known = dict(found.values)
    for name in _SET_BY_STARBURST.findall(written):
        if name not in known:
            known[name] = (_reference(name),)
            fidelity.approximated(text, f"$({name}) is set where Starburst runs the task, else empty")
    return found.expansion.expand(text, known.get, variable)


def _literal(variable: Field, name: str, found: Environment, fidelity: Fidelity) -> None:
    word = expanded(variable.at("value"), found, fidelity, name)
    found.put(name, word)
    if _is_special(name):
        fidelity.kept(variable, f"{name}, given to the command by env, not by the shell")
    elif _is_exported(word):
        fidelity.kept(variable, f"{name}, exported in run")
    else:
        fidelity.kept(variable, f"as envs: {name}")


def _from_elsewhere(source: Field, name: str, found: Environment, downward: Downward, lookup: Lookup) -> None:
    if source.at("secretKeyRef").value is not None:
        _secret(source.at("secretKeyRef"), name, found, lookup)
    elif source.at("configMapKeyRef").value is not None:
        value = _value(source.at("configMapKeyRef"), CONFIG_MAP, lookup)
        if value is not None:
            found.put(name, found.expansion.count(source, (value,), name))
            lookup.fidelity.kept(source, f"as envs: {name}")
    else:
        known = downward.read(source)
        if known.word is not None:
            found.put(name, known.word)
        tell = {
            FidelityLevel.KEPT: lookup.fidelity.kept,
            FidelityLevel.APPROXIMATED: lookup.fidelity.approximated,
            FidelityLevel.REFUSED: lookup.fidelity.refused,
        }
        tell[known.verdict](source, known.text)


def _secret(reference: Field, name: str, found: Environment, lookup: Lookup) -> None:
    if found.by_shell and _is_special(name):
        lookup.fidelity.refused(reference, f"a Secret's value cannot be given as {name}; choose another name")
        return
    value = _value(reference, SECRET, lookup, mend=f"give it as sky launch --secret {name}, or {STAY}")
    if value is not None:
        found.put_secret(name, value)
        lookup.fidelity.kept(reference, f"as secrets: {name}")
    elif lookup.resolve is None:
        found.put_secret(name, None)


def _value(reference: Field, kind: str, lookup: Lookup, mend: str = ONLY_THE_CLUSTER) -> str | None:
    """The value of one key; None if it is unknown, which is reported."""
    data = lookup.data(kind, reference, reference.at("name"), mend=mend)
    key = reference.at("key").text() or ""
    if data.values is None or data.absent:
        return None
    if key not in data.values and reference.at("optional").flag():
        lookup.fidelity.kept(reference, f"{kind} {reference.at('name').value} has no {key}, and need not")
    elif key not in data.values:
        lookup.fidelity.refused(reference, f"{kind} {reference.at('name').value} has no key {key}; add it")
    return data.values.get(key)


def _all_of(source: Field, found: Environment, lookup: Lookup) -> None:
    """Set each key of a ConfigMap or Secret as a variable."""
    prefix = source.at("prefix").text() or ""
    kind, where = (
        (SECRET, source.at("secretRef"))
        if source.at("secretRef").value is not None
        else (CONFIG_MAP, source.at("configMapRef"))
    )
    data = lookup.data(kind, where, where.at("name"))
    if data.values is None or data.absent:
        return
    for key, value in data.values.items():
        if kind == CONFIG_MAP:
            found.put(prefix + key, found.expansion.count(where, (value,), prefix + key))
        elif found.by_shell and _is_special(prefix + key):
            lookup.fidelity.refused(
                where, f"no Secret's value can be given as {prefix + key}; list the others"
            )
        else:
            found.put_secret(prefix + key, value)
    how = "secrets" if kind == SECRET else "envs"
    lookup.fidelity.kept(where, f"as {how}: {', '.join(prefix + key for key in data.values)}")


def _is_exported(word: ShellWord) -> bool:
    """Whether the run script must export a value: known at run time only, or changed by SkyPilot's shell."""
    text = text_of(word)
    return text is None or is_changed(text)


def _is_special(name: str) -> bool:
    return name in _TAKEN or name.startswith("BASH_") or not _NAME.fullmatch(name)


def _reference(name: str) -> ShellExpression:
    """The value of a variable, as a shell gives it."""
    return ShellExpression(f"${{{name}}}")
