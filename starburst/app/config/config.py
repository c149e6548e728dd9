"""starburst.yaml: its fields with defaults, and errors that name file, field, value and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from starburst.app.config.bus import BusConfig
from starburst.app.config.caps import CapConfig, CapsConfig, caps_of
from starburst.app.config.fields import (
    Seconds,
    Section,
)
from starburst.app.config.http import HttpConfig
from starburst.app.config.limits import LimitsConfig
from starburst.app.config.notify import NotifyRule, SmtpConfig
from starburst.app.config.policy import (
    PolicyConfig,
)
from starburst.app.config.queues import QueueConfig, QueuesConfig, queues_of
from starburst.app.config.run_as import RunsJobs
from starburst.app.config.scalars import ConfigLoader
from starburst.app.config.sites import (
    CloudConfig,
    CloudSection,
    ClusterConfig,
    KubernetesConfig,
    LocalClusterConfig,
    NodeConfig,
    OfferConfig,
    SkyConfig,
    runs_users_here,
    with_cloud,
)
from starburst.app.config.store import StoreConfig
from starburst.app.config.tracing import TracingConfig
from starburst.app.errors import UserError
from starburst.core.model.settings import Settings
from starburst.domain.money import Money
from starburst.runs.supervisor.log_pump import MAX_LOG
from translator.carried import CloudStorage
from translator.errors import ManifestErrors, shown
from translator.field import did_you_mean
from translator.manifests.documents import chunks, load
from translator.manifests.scalars import NO_NUMBERS
from translator.manifests.tenancy import Grant, Tenancy
from translator.tasks.storage.cloud_volumes import at_home, is_bucket


class HomeConfig(Section):
    """The directory of all this."""

    keep: Seconds = Field(
        30 * 86_400.0,
        description="jobs with their decisions, and runs and machines of the embedded sites, are removed "
        "this long after their end, on the wall's clock; bills and past jobs stay; 0 is never",
    )
    max_log: int = Field(
        MAX_LOG,
        ge=1 << 16,
        le=1 << 50,
        description="bytes of a task's log that the embedded sites keep: the beginning, and beyond it the "
        "last 64 KiB with a line that says how much was left out",
    )


class ClockConfig(Section):
    """The scheduler's clock."""

    speed: float = Field(
        1.0,
        ge=0.001,
        le=10_000,
        allow_inf_nan=False,
        description="1 is real time; more makes waits and bills run faster",
    )


class DebugConfig(Section):
    """Checks of the scheduler itself."""

    #: Every model of pydantic has a method `validate`, so the field has another name here than in the file.
    model_config = ConfigDict(serialize_by_alias=True)

    validates: bool = Field(
        False,
        alias="validate",
        description="check the whole state before each step is stored; if it contradicts itself, which is a "
        "bug, log that and stop without storing the step",
    )


class Config(Section):
    """All of starburst.yaml."""

    policy: PolicyConfig = Field(PolicyConfig(), description="when jobs wait, leave, and come home")
    cluster: ClusterConfig = Field(LocalClusterConfig(), description="the on-prem cluster")
    cloud: CloudSection = Field(CloudConfig(), description="the rented machines")
    home: HomeConfig = Field(HomeConfig(), description="the directory of all this")
    store: StoreConfig = Field(StoreConfig(), description="where jobs, decisions and bills are kept")
    clock: ClockConfig = Field(ClockConfig(), description="the scheduler's clock")
    bus: BusConfig = Field(BusConfig(), description="events out to a broker, and hints in from it")
    http: HttpConfig = Field(HttpConfig(), description="the HTTP API, the dashboard and the metrics")
    tracing: TracingConfig = Field(
        TracingConfig(), description="a span per decision, sent to a collector of OpenTelemetry"
    )
    caps: CapsConfig = Field([], description="what may be spent in the cloud, in all and by whom")
    notify: list[NotifyRule] = Field([], description="who is notified of ends, bursts, caps and leaks")
    smtp: SmtpConfig = Field(SmtpConfig(), description="the server that takes e-mail of notify")
    queues: QueuesConfig = Field([], description="the queues there are; none is any that jobs name")
    limits: LimitsConfig = Field(LimitsConfig(), description="how much users may hand in")
    debug: DebugConfig = Field(DebugConfig(), description="checks of the scheduler itself")

    @model_validator(mode="after")
    def _mail_has_a_server(self) -> Config:
        if self.smtp.host is None and any(rule.email for rule in self.notify):
            raise ValueError("notify: email needs smtp.host; name the server, or give a webhook")
        return self

    def tenancy(self) -> Tenancy | None:
        """The rights of submitted jobs in the cluster; None without Kubernetes."""
        cluster = self.cluster
        if not isinstance(cluster, KubernetesConfig):
            return None
        return Tenancy(
            namespace=cluster.namespace,
            namespaces=tuple(cluster.namespaces),
            pod_security=cluster.pod_security,
            queues={q.name: Grant(tuple(q.namespaces), tuple(q.secrets)) for q in self.queues},
            checkpoints=cluster.checkpoints,
        )

    @model_validator(mode="before")
    @classmethod
    def _no_cloud_unless_said(cls, data: object) -> object:
        return with_cloud(data)

    def on_this_machine(self) -> dict[str, RunsJobs]:
        """The embedded sites, each with the user that its jobs run as."""
        sites: dict[str, RunsJobs] = {}
        if isinstance(self.cluster, LocalClusterConfig):
            sites["cluster"] = self.cluster
        if isinstance(self.cloud, CloudConfig) and self.cloud.catalog():
            sites["cloud"] = sites.get("cluster", self.cloud) if self.cloud.run_as is None else self.cloud
        return sites

    def stores(self) -> dict[str, CloudStorage]:
        """The object stores that replace volumes of the cluster on rented machines."""
        if not isinstance(self.cloud, SkyConfig):
            return {}
        cluster = self.cluster
        home = cluster.namespace if isinstance(cluster, KubernetesConfig) else "default"
        return at_home(self.cloud.stores(), home)

    @property
    def has_idle_budget(self) -> bool:
        """Whether `policy.budget_percent` is given and changes nothing: a factor takes its place.

        A calibrated budget is kept to with a factor, too, and a queue's own P scales the factor by its ratio
        to the policy's. Of a file only: a stored config gives all fields.
        """
        policy, own = self.policy, any(queue.budget_percent is not None for queue in self.queues)
        given = {"factor", "budget_percent"} <= policy.model_fields_set and policy.factor is not None
        return given and policy.budget_mode == "open" and not own

    def settings(self) -> Settings:
        """The settings of the core, in SI units."""
        return replace(
            self.policy.settings(),
            caps=caps_of(self.caps),
            max_rate=_limit(self.cloud.max_usd_per_hour),
            max_failing=_limit(self.cloud.max_usd_on_failures),
            queues=queues_of(self.queues),
        )


def _limit(dollars: float | None) -> Money | None:
    return None if dollars is None else Money.of(dollars)


def load_config(path: Path | None) -> Config:
    """The config of a file; all defaults if `path` is None.

    Raises:
        UserError: the file cannot be read or is invalid; one line per problem.
    """
    if path is None:
        return Config()
    try:
        documents = chunks(path.read_bytes().decode())
        data = load(documents[0], str(path), 1, ConfigLoader)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; write YAML in UTF-8") from None
    except ManifestErrors as errors:
        raise UserError(str(errors)) from None
    if len(documents) > 1:
        raise UserError(f"{path}, document 2: a config is one document; remove the --- between them")
    config = parse_config({} if data is None else data, str(path))
    # Not a validator of the model: configs stored by older versions must still load.
    problem = trust_problem(config) or _bucket_problem(config)
    if problem:
        raise UserError(f"{path}: {problem}")
    return config


UNTRUSTED = (
    'cloud.kind: "local": whoever may create Jobs in the cluster would run commands on this machine, as the '
    "user that runs Starburst; leave cloud out for none, write kind: skypilot, or set cloud.trust_users: true"
)


def trust_problem(config: Config) -> str:
    """The problem of a config that lets users of the cluster run commands here; "" is none."""
    trusts = isinstance(config.cloud, CloudConfig) and config.cloud.trust_users
    return UNTRUSTED if runs_users_here(config.cluster, config.cloud) and not trusts else ""


def _bucket_problem(config: Config) -> str:
    """The problem of a `cloud.bucket` that no launch could mount; "" is none."""
    bucket = config.cloud.bucket if isinstance(config.cloud, SkyConfig) else None
    if bucket is None or is_bucket(bucket):
        return ""
    return f"cloud.bucket: {shown(bucket)}: must be the URL of a bucket, such as s3://data/runs or gs://data"


def parse_config(data: object, source: str) -> Config:
    """A config from plain data; `source` is its name in errors.

    Raises:
        UserError: the data are invalid; one line per problem.
    """
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = dict.fromkeys(_line(source, problem) for problem in error.errors())
        raise UserError("\n".join(lines)) from None


def _line(source: str, problem: Any) -> str:
    kind, place = problem["type"], problem["loc"]
    if place[:1] in (("cluster",), ("cloud",)):
        place = (place[0], *place[2:])  # pydantic adds the kind, a level that the file does not have
    if kind == "extra_forbidden":
        fields = _section(problem["loc"][:-1]).model_fields
        known = [field.alias or name for name, field in fields.items()]
        mend = did_you_mean(str(place[-1]), known, f"the fields here are {', '.join(known)}")
        return f"{source}: {_path(place)}: there is no such field; {mend}"
    value = "" if kind == "missing" else shown(problem["input"])
    mend = _mend(problem)
    return ": ".join(part for part in (source, _path(place), value, mend) if part)


def _path(place: Sequence[str | int]) -> str:
    """A location as text, such as cluster.nodes[0].gpus."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


#: Remedies by pydantic's error type; braces refer to the error's context.
MENDS = {
    "missing": "is missing; add it",
    "int_type": "must be a whole number, without quotes",
    "float_type": "must be a finite number, without quotes",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false, without quotes",
    "string_type": "must be text; put it in quotes",
    "string_pattern_mismatch": "must be letters, digits, dashes, dots and underscores, "
    "with a letter or digit at each end",
    "string_too_short": "must be at least {min_length} long, or be left out",
    "string_too_long": "must be at most {max_length} characters",
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.0f}",
    "literal_error": "must be {expected}",
    "list_type": "must be a list; begin each element with a dash",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of fields to values",
    "too_short": "must not be empty",
    "value_error": "{error}",
}


def _mend(problem: Any) -> str:
    given = problem["input"]  # what YAML has for numbers that are none is read as text
    unquoted = problem["type"] == "float_type" and isinstance(given, str) and NO_NUMBERS.fullmatch(given)
    template = MENDS.get("finite_number" if unquoted else problem["type"])
    return str(problem["msg"]) if template is None else template.format(**problem.get("ctx", {}))


#: Fields that hold sections.
SECTIONS: dict[str, type[BaseModel]] = {
    "policy": PolicyConfig,
    "local": LocalClusterConfig,
    "kubernetes": KubernetesConfig,
    "embedded": CloudConfig,
    "skypilot": SkyConfig,
    "home": HomeConfig,
    "store": StoreConfig,
    "clock": ClockConfig,
    "bus": BusConfig,
    "http": HttpConfig,
    "tracing": TracingConfig,
    "nodes": NodeConfig,
    "offers": OfferConfig,
    "caps": CapConfig,
    "notify": NotifyRule,
    "smtp": SmtpConfig,
    "queues": QueueConfig,
    "limits": LimitsConfig,
    "debug": DebugConfig,
}


def _section(place: Sequence[str | int]) -> type[BaseModel]:
    """The model of the section at a location."""
    return next((SECTIONS[part] for part in reversed(place) if isinstance(part, str)), Config)
