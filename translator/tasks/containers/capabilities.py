"""Capabilities of containers on rented machines, and what of a security context counts there.

On a rented machine, which jobs of several users share, a container has few capabilities: those of Docker's
default set that act on its own files and processes only. A job may drop them, and add what stays harmless.
"""

from __future__ import annotations

from translator.field import Field

#: Capabilities of every container, by capabilities(7).
DEFAULT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
#: Further ones that a job may add: they reach nothing outside of its container.
MORE_CAPABILITIES = ("AUDIT_WRITE", "IPC_LOCK", "SETFCAP", "SETPCAP", "SYS_CHROOT", "SYS_NICE", "SYS_PTRACE")

#: Fields of a security context that a container on a rented machine is given.
_GIVEN = {
    "allowPrivilegeEscalation",
    "capabilities",
    "fsGroup",
    "fsGroupChangePolicy",
    "privileged",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "supplementalGroups",
}


def check_security(context: Field) -> None:
    """Refuse or note what a security context asks for and a shared machine does not give."""
    for capability in context.at("capabilities").at("add").items():
        name = _plain(capability.value)
        if name not in (*DEFAULT_CAPABILITIES, *MORE_CAPABILITIES):
            capability.refuse_away(
                "is not given by the embedded cluster; remove it",
                f"the capability {name} is not given on a machine that jobs share",
                show=False,
            )
    lost = sorted(key for key, found in context.entries().items() if key not in _GIVEN and found.value)
    if lost:
        context.note_away(f"{', '.join(lost)}: not passed on")


def check_group(pod: Field, container: Field) -> None:
    """Note a group that neither context of a pod and its container names a user for: an engine takes both."""
    groups = [context.at("runAsGroup") for context in (container, pod)]
    users = [context.at("runAsUser") for context in (container, pod)]
    given = [group for group in groups if group.value is not None]
    if given and all(user.value is None for user in users):
        given[0].note_away("is not passed on without runAsUser")


def capabilities(field: Field) -> tuple[str, ...]:
    """The capabilities of a container with this `capabilities`; those that are not given are left out."""
    dropped = {_plain(name.value) for name in _items(field.at("drop"))}
    added = [_plain(name.value) for name in _items(field.at("add"))]
    kept = () if "ALL" in dropped else DEFAULT_CAPABILITIES
    found = [name for name in kept if name not in dropped]
    found += [name for name in added if name in (*DEFAULT_CAPABILITIES, *MORE_CAPABILITIES)]
    return tuple(dict.fromkeys(found))


def _plain(name: object) -> str:
    return str(name).upper().removeprefix("CAP_")


def _items(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else []
