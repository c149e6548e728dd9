"""Execution of a container's command: argument vector, working directory, time limit and retries."""

from __future__ import annotations

from typing import Any

from translator.fidelity import STAY, Fidelity
from translator.field import Field
from translator.manifests.hints import DEFAULT_RETRIES
from translator.manifests.pod import DEFAULT_GRACE_S
from translator.tasks.environment import Environment, expanded
from translator.tasks.manifest_parts import ManifestParts
from translator.tasks.shell import ShellWord, needs_env, text_of

#: Seconds between SIGTERM and SIGKILL when SkyPilot cancels a job (0.14.1, sky/skylet/subprocess_daemon.py).
SKY_GRACE_S = 30


def read_command(container: Field, environment: Environment, fidelity: Fidelity) -> tuple[ShellWord, ...]:
    """The argument vector; empty if it depends on the image's entry point, which is unknown here."""
    command, args = container.at("command"), container.at("args")
    if not command.value:
        fidelity.refused(
            command,
            f"is missing, and SkyPilot does not run an image's own; write it out, or {STAY}",
        )
        if args.value:
            fidelity.refused(args, "needs the command that it is for")
        return ()
    words = tuple(expanded(word, environment, fidelity) for word in (*command.items(), *args.items()))
    if needs_env(words, environment.beside) and "=" in (text_of(words[0]) or "="):
        fidelity.refused(command.items()[0], "a program of such a name cannot be started here; rename it")
        return ()
    fidelity.kept(command, "as run, word by word")
    if args.value:
        fidelity.kept(args, "as run, word by word")
    return words


def read_working_dir(container: Field, fidelity: Fidelity) -> str | None:
    """The working directory of the command; None if absent."""
    field = container.at("workingDir")
    if field.value:
        fidelity.kept(field, "as cd in run; made if it is missing")
    elif container.at("image").value:
        fidelity.approximated(field, "is absent: SkyPilot starts in ~/sky_workdir, not where the image does")
    return field.text()


def read_limit_s(parts: ManifestParts, fidelity: Fidelity) -> int | None:
    """Time limit of the command, seconds: the least activeDeadlineSeconds of Job and pod."""
    limits = [
        (field, field.value)
        for field in (parts.job.at("activeDeadlineSeconds"), parts.spec.at("activeDeadlineSeconds"))
        if isinstance(field.value, int)
    ]
    for field, _ in limits:
        fidelity.approximated(field, "as timeout in run, from the command's start; exit code 124 or 137")
    return min((limit for _, limit in limits), default=None)


def read_grace_s(parts: ManifestParts, fidelity: Fidelity) -> int:
    """Seconds between SIGTERM and SIGKILL after the time limit."""
    field = parts.spec.at("terminationGracePeriodSeconds")
    if field.value is None:
        return DEFAULT_GRACE_S
    if field.value == SKY_GRACE_S:
        fidelity.kept(field, "what SkyPilot grants")
    else:
        fidelity.approximated(field, f"holds after activeDeadlineSeconds; sky cancel grants {SKY_GRACE_S} s")
    return field.whole(0) or 0


def read_retries(parts: ManifestParts, fidelity: Fidelity) -> dict[str, Any]:
    """`job_recovery` for the backoffLimit; it has an effect for SkyPilot's managed jobs only."""
    if parts.job.value is None:
        _judge_restart(parts, fidelity, retries=0)
        return {}
    field = parts.job.at("backoffLimit")
    retries = field.value if isinstance(field.value, int) else DEFAULT_RETRIES
    _judge_restart(parts, fidelity, retries=retries)
    if not retries:
        fidelity.kept(field, "failed commands are not run again")
        return {}
    absent = "" if field.value is not None else f"is absent, which is {retries}; "
    fidelity.approximated(field, f"{absent}as job_recovery, which counts for sky jobs launch alone")
    return {"job_recovery": {"max_restarts_on_errors": retries}}


def _judge_restart(parts: ManifestParts, fidelity: Fidelity, *, retries: int) -> None:
    policy = parts.spec.at("restartPolicy")
    if policy.value == "OnFailure" and (retries or parts.job.value is None):
        fidelity.approximated(policy, "a failed command is not run again in its place")
    elif policy.value is not None:
        fidelity.kept(policy, "a command runs once")
