"""What the scheduler asks of a machine's agent and what it answers, as JSON.

Both ends use these types. An agent is only ever asked by the version of the scheduler that it came with: each
version is sent under a name of its own (`access/agent_archive.py`). The types say what a sound agent answers;
since a job may have come to own its machine, the scheduler checks every answer all the same
(`access/answers.py`).
Durations are seconds, points in time are epoch seconds on the machine's clock.
"""

from __future__ import annotations

from typing import Any, TypedDict

#: Bytes of output of all tasks together in one answer; each task has an equal part.
LOG_BYTES = 1 << 22


class VolumeMount(TypedDict):
    """A volume of a task, or a directory of one."""

    #: Where the task finds it.
    path: str
    #: Where it is mounted on the machine; None: an emptyDir of the attempt's own.
    store: str | None
    #: Its name for people.
    told: str
    #: Whether a bucket was copied to the machine's disk rather than mounted.
    copied: bool
    #: The directory of it that is shown.
    below: str
    read_only: bool
    #: An attempt's own with files that come with the run.
    files: bool
    #: In memory, of so many MiB; 0: as many as the container has; None: not in memory.
    memory_mib: int | None


class FileToWrite(TypedDict):
    """A file of a volume of the attempt."""

    #: The volume's number, and the path within it.
    volume: str
    path: str
    #: In base64.
    content: str
    #: None: the default of its kind, and of the user of the container.
    mode: int | None
    secret: bool


class RegistryLogin(TypedDict):
    """A login for the registry of a task's image, from `imagePullSecrets`."""

    registry: str
    username: str
    password: str


class ContainerSpec(TypedDict):
    """A task with an image: parts of the command line that makes its container, see `runs/docker.py`."""

    name: str
    image: str
    #: Kubernetes' imagePullPolicy.
    pull: str
    #: The image may not run it as root.
    non_root: bool
    #: Options with @DIR@, @CHECKPOINTS@ and @REPORT@ to be filled in on the machine.
    options: list[str]
    #: The image and its command.
    rest: list[str]
    #: A line per variable.
    env_file: str
    #: Variables that no line can hold.
    env: dict[str, str]
    volumes: list[VolumeMount]


class TaskSpec(TypedDict):
    """What a machine is to run of one task."""

    command: list[str]
    #: None: the task's own directory.
    cwd: str | None
    env: dict[str, str]
    gpus: int
    cpus: float
    #: Of a task without an image; 0: no limit.
    memory_mib: int
    #: Its job goes on from its checkpoints.
    saves: bool
    #: A directory; may begin with ~.
    checkpoints: str
    docker: ContainerSpec | None
    grace_s: float
    time_limit_s: float | None
    #: Addresses of all tasks of its gang, by rank; [] for a job of one task.
    hosts: list[str]
    #: Files of a task without an image.
    mounts: list[VolumeMount]
    #: Bytes of its log; what exceeds them is cut, but for its end.
    max_log: int


class TaskSpecWithSecrets(TaskSpec):
    """The same with what the machine keeps apart from it until the task starts: Secrets, logins, files."""

    secrets: dict[str, str]
    logins: list[RegistryLogin]
    files: list[FileToWrite]


class SwitchSettings(TypedDict, total=False):
    """When the dead-man switch shuts its machine down."""

    #: Seconds after the lease passed.
    after_s: float
    #: At once.
    now: bool


class ExchangeRequest(TypedDict, total=False):
    """One exchange about all tasks of a machine; tasks are named job/attempt/rank."""

    #: Tasks to be taken in.
    specs: dict[str, TaskSpec]
    #: Tasks to be started unless they have begun.
    starts: list[str]
    #: Tasks to be stopped, with their grace.
    stops: dict[str, float]
    #: Tasks to be looked at: the byte from which on their output is wanted; None: none of it.
    look: dict[str, int | None]
    #: Tasks whose progress report is wanted unless it has this digest.
    hear: dict[str, str]
    #: Renew the machine's lease by this much.
    lease_s: float | None
    #: New settings of the dead-man switch.
    switch: SwitchSettings | None


class TaskAnswer(TypedDict):
    """How a task stands."""

    #: It was taken in.
    known: bool
    #: Something of it may have run, or it never will.
    began: bool
    #: Its command runs or ran.
    started: bool
    #: Nothing of it is alive.
    over: bool
    #: `exit.json` (`runs/supervisor/exits.py`); None if its supervisor was killed.
    exit: dict[str, Any] | None
    #: Output, compressed by zlib and in base64; and whether there is more.
    log: str
    more: bool
    #: Its progress report in base64; None: nothing new.
    report: str | None
    #: Why something that was asked for could not be done; "" if all was.
    trouble: str
    #: Why it has not started though it began, such as the pull of its image; "" otherwise.
    waits: str


class Separation(TypedDict):
    """Whether the machine keeps tasks without an image apart."""

    #: The id of the boot in which this was found out.
    boot: str
    #: Why they run as the machine's user; "" if each job has an account of its own.
    tasks: str
    #: Why they can connect to what listens on the machine, and to its metadata; "" if they cannot.
    network: str


class ExchangeAnswer(TypedDict):
    """How a machine stands, with the tasks that were asked about."""

    booted_at: float
    now: float
    ranks: dict[str, TaskAnswer]
    #: The lease has passed: its runs were told to end.
    lapsed: bool
    #: The lease was renewed, if that was asked for.
    renewed: bool
    #: Why it starts no task, or cannot be kept; "" if neither.
    trouble: str
    #: The dead-man switch runs; the keeper stands in SkyPilot's queue.
    armed: bool
    kept: bool
    #: The images that it has, as tasks name them, with the seconds of their pull; None: was there before.
    images: dict[str, float | None]
    #: Why its tasks are not kept apart; "" if they are, or none was to be started.
    together: str
    host: str
    #: In the machine's network.
    address: str


class ImageToPull(TypedDict):
    """An image to be pulled before a task needs it, with the logins of its registry."""

    image: str
    logins: list[RegistryLogin]


class PullRequest(TypedDict):
    """Images to be pulled in the background."""

    images: list[ImageToPull]


class RetireAnswer(TypedDict):
    """Whether the machine is about to shut itself down."""

    armed: bool
