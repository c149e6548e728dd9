"""starburst.yaml: what can be set, with its defaults, and errors that name file, field, value and mend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from starburst.app.errors import UserError
from starburst.clouds.catalog import EC2_CATALOG, LocalOffer
from starburst.core.settings import Settings
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.ordering import ORDERS
from starburst.policy.packing.registry import PACKERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import HOUR_S, WAITING
from translator.documents import chunks, load
from translator.duration import seconds
from translator.errors import ManifestErrors, shown
from translator.field import did_you_mean
from translator.hints import DNS_LABEL

#: Ten years: longer is taken for a slip of the keyboard.
MOST_SECONDS = 3650 * 86_400.0
MOST = 1_000_000


def _text(duration_s: float) -> str:
    """Seconds as the file has them."""
    return f"{duration_s:.3f}".rstrip("0").rstrip(".") + "s"


def _duration(least_s: float = 0.0) -> BeforeValidator:
    def check(value: object) -> float:
        found_s = seconds(value if isinstance(value, str | int | float) else "")
        if not least_s <= found_s <= MOST_SECONDS:
            raise ValueError(f"must be at least {_text(least_s)} and at most {MOST_SECONDS / 86_400:.0f}d")
        return found_s

    return BeforeValidator(check)


def _one_of(known: Mapping[str, object]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(did_you_mean(value, known, f"choose one of {', '.join(known)}"))
        return value

    return check


def _namespace(value: str) -> str:
    if not DNS_LABEL.fullmatch(value):
        raise ValueError("must be lower-case letters, digits and dashes, the ends no dashes, 63 at most")
    return value


def _file(value: str) -> str:
    try:
        return str(Path(value).expanduser().absolute())
    except RuntimeError:
        raise ValueError("no home directory is known for this user; write the whole path") from None


#: Volumes that checkpoints may be kept in, with the fields that each needs.
VOLUMES = {"hostPath": ("path",), "persistentVolumeClaim": ("claimName",), "nfs": ("server", "path")}


def _volume(value: dict[str, Any]) -> dict[str, Any]:
    (kind, source), *more = [*value.items(), (None, None)]
    if kind not in VOLUMES or len(more) > 1:
        raise ValueError(f"must be one of {', '.join(VOLUMES)}, such as {{hostPath: {{path: /data/ckpt}}}}")
    for field in VOLUMES[kind]:
        if not isinstance(source, dict) or not isinstance(source.get(field), str) or not source[field]:
            raise ValueError(f"{kind} needs {field}, which is text")
    return value


_AsText = PlainSerializer(_text)
_TextSchema = WithJsonSchema({"type": ["string", "integer"], "examples": ["90s", "15m", "1h30m", 0]})
#: A duration such as 15m in the file, seconds in the program.
Seconds = Annotated[float, _duration(), _AsText, _TextSchema]
Lease = Annotated[float, _duration(60.0), _AsText, _TextSchema]
BindLimit = Annotated[float, _duration(1.0), _AsText, _TextSchema]
Namespace = Annotated[
    str, AfterValidator(_namespace), Field(json_schema_extra={"pattern": f"^{DNS_LABEL.pattern}$"})
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$", max_length=63)]
Amount = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]
Gpus = Annotated[int, Field(ge=0, le=10_000)]
Waiting = Annotated[str, AfterValidator(_one_of(WAITING)), Field(json_schema_extra={"enum": [*WAITING]})]
Order = Annotated[str, AfterValidator(_one_of(ORDERS)), Field(json_schema_extra={"enum": [*ORDERS]})]
Placement = Annotated[
    str, AfterValidator(_one_of(PLACEMENTS)), Field(json_schema_extra={"enum": [*PLACEMENTS]})
]
PackerName = Annotated[str, AfterValidator(_one_of(PACKERS)), Field(json_schema_extra={"enum": [*PACKERS]})]
Returns = Annotated[str, AfterValidator(_one_of(RETURNS)), Field(json_schema_extra={"enum": [*RETURNS]})]


class Section(BaseModel):
    """A part of the file. Unknown fields are refused, as are values of another type, such as "4" for 4."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PolicyConfig(Section):
    """When jobs wait, leave, and come home."""

    waiting: Waiting = Field("compute", description="how the wait budget is shared out over jobs")
    budget_percent: float = Field(
        25.0, gt=0, le=10_000, allow_inf_nan=False, description="P: how much longer jobs may take on average"
    )
    budget_mode: Literal["open", "calibrated"] = Field(
        "open", description="open: the factor is what P gives in theory; calibrated: it follows what is spent"
    )
    hopeless: Literal["wait", "leave"] = Field(
        "wait", description="what a job does that, by estimates, cannot start before its wait ends"
    )
    factor: Amount | None = Field(
        None,
        description="the waiting policy's factor instead of what P gives: hours for constant, hours per GPU "
        "for resource and star, a ratio for runtime and compute",
    )
    order: Order = Field("fifo", description="who goes first in the queue")
    out_of_order: bool = Field(True, description="go on past a job that does not fit")
    backfill: bool = Field(False, description="EASY backfill; needs out_of_order: false")
    placement: Placement = Field("best-fit", description="which node a job gets")
    queue_limit: int | None = Field(
        None, ge=0, le=MOST, description="Q_max: beyond it the last job leaves at once; null is no limit"
    )
    offload_cpu_only: bool = Field(True, description="jobs without GPUs leave at once")
    short_jobs: Seconds = Field(0.0, description="shorter jobs leave at once; 0 is off")
    returns: Returns = Field("if-it-pays", description="when a cloud run comes home to the cluster")
    t_max: Seconds = Field(900.0, description="T_max: a cloud run this old is looked at for coming home")
    cpus_per_gpu: Positive = Field(50.0, description="CPUs that cost as much as one GPU")
    prior_gpus: Positive = Field(1.0, description="mean job size assumed before there is history")
    prior_runtime: Seconds = Field(3600.0, description="mean run time assumed before there is history")
    prior_jobs: Positive = Field(20.0, description="how many jobs that assumption counts as")
    offer_pause: Seconds = Field(300.0, description="an offer whose launch failed is left alone this long")
    packer: PackerName = Field("none", description="how jobs that leave share machines; none is one each")
    pack_window: Seconds = Field(
        0.0, description="how long the first to leave waits for others, to be packed with them"
    )
    unreachable: Seconds = Field(
        600.0, description="a rented machine that does not answer for this long is ended"
    )

    @field_validator("out_of_order")
    @classmethod
    def _strict_order(cls, out_of_order: bool, info: ValidationInfo) -> bool:
        order = info.data.get("order")
        if order in DISCIPLINES and not out_of_order:
            raise ValueError(f"order: {order} goes past what does not fit; leave out_of_order out")
        return out_of_order

    @field_validator("backfill")
    @classmethod
    def _backfill_in_order(cls, backfill: bool, info: ValidationInfo) -> bool:
        if backfill and info.data.get("out_of_order"):
            raise ValueError("needs out_of_order: false; out of order is backfill without reservations")
        return backfill

    def settings(self) -> Settings:
        """As the core takes them, in SI units."""
        factor = self.factor
        if factor is not None and WAITING[self.waiting].factor_in_hours:
            factor *= HOUR_S
        return Settings(
            waiting=self.waiting,
            budget_percent=self.budget_percent,
            budget_mode=self.budget_mode,
            hopeless=self.hopeless,
            factor=factor,
            order=self.order,
            out_of_order=self.out_of_order,
            backfill=self.backfill,
            placement=self.placement,
            queue_limit=self.queue_limit,
            offload_cpu_only=self.offload_cpu_only,
            short_job_s=self.short_jobs,
            returns=self.returns,
            t_max_s=self.t_max,
            cpus_per_gpu=self.cpus_per_gpu,
            prior_size=self.prior_gpus,
            prior_runtime_s=self.prior_runtime,
            prior_jobs=self.prior_jobs,
            offer_pause_s=self.offer_pause,
            packer=self.packer,
            pack_window_s=self.pack_window,
            unreachable_s=self.unreachable,
        )


class NodeConfig(Section):
    """One node of the embedded cluster, or `count` alike."""

    name: Name = Field(description="unique among nodes")
    count: int = Field(1, ge=1, le=10_000, description="more than one are named name-0, name-1, …")
    gpus: Gpus = Field(0, description="GPUs of each")
    gpu_type: str = Field("", description="their type, such as V100")
    cpus: Amount = Field(8.0, description="CPU cores of each")
    memory_gib: Amount = Field(32.0, description="memory of each, GiB")
    labels: dict[str, str] = Field({}, description="what a job's nodeSelector may ask for")

    def nodes(self) -> list[Node]:
        """The nodes it stands for."""
        capacity = Resources.of(self.gpus, self.cpus, self.memory_gib, self.gpu_type)
        labels = tuple(sorted(self.labels.items()))
        names = [self.name] if self.count == 1 else [f"{self.name}-{i}" for i in range(self.count)]
        return [Node(name, capacity, labels) for name in names]


def _kind(value: object) -> object:
    if value not in CLUSTERS:
        raise ValueError(f"must be {' or '.join(map(repr, CLUSTERS))}")
    return value


class LocalClusterConfig(Section):
    """The embedded cluster."""

    kind: Annotated[Literal["local"], BeforeValidator(_kind)] = Field(
        "local", description="local: jobs are processes of this machine"
    )
    nodes: list[NodeConfig] = Field(
        default=[NodeConfig(name="node", count=2, gpus=4, gpu_type="V100", cpus=32, memory_gib=244)],
        min_length=1,
        description="what the cluster has",
    )

    @field_validator("nodes")
    @classmethod
    def _names_once(cls, nodes: list[NodeConfig]) -> list[NodeConfig]:
        _refuse_twice(node.name for entry in nodes for node in entry.nodes())
        return nodes

    def known_nodes(self) -> tuple[Node, ...]:
        """The nodes that the file names."""
        return tuple(node for entry in self.nodes for node in entry.nodes())


class KubernetesConfig(Section):
    """A Kubernetes cluster. Its nodes are its own truth."""

    kind: Literal["kubernetes"] = Field("kubernetes", description="kubernetes: jobs are its Jobs")
    kubeconfig: Annotated[str, AfterValidator(_file)] | None = Field(
        None, description="a file; null is KUBECONFIG, else ~/.kube/config, else the pod's own account"
    )
    context: str | None = Field(None, description="of the kubeconfig; null is its current one")
    namespace: Namespace = Field("default", description="of submitted jobs whose manifest names none")
    checkpoints: Annotated[dict[str, Any], AfterValidator(_volume)] | None = Field(
        None,
        description="where jobs keep their checkpoints, as a Kubernetes volume: hostPath, "
        "persistentVolumeClaim or nfs with its fields; null is nowhere",
    )
    bind_limit: BindLimit = Field(
        60.0, description="a placed run whose pods are not bound in this time is taken back"
    )

    def known_nodes(self) -> tuple[Node, ...]:
        """None: the file does not say."""
        return ()


def _kind_of(cluster: object) -> str:
    kind = cluster.get("kind") if isinstance(cluster, dict) else getattr(cluster, "kind", None)
    return "kubernetes" if kind == "kubernetes" else "local"


ClusterConfig: TypeAlias = Annotated[
    Annotated[LocalClusterConfig, Tag("local")] | Annotated[KubernetesConfig, Tag("kubernetes")],
    Discriminator(_kind_of),
]
CLUSTERS = ("local", "kubernetes")


class OfferConfig(Section):
    """One instance type of the embedded cloud."""

    name: Name = Field(description="unique among offers")
    gpus: Gpus = Field(0, description="GPUs of a machine")
    gpu_type: str = Field("", description="their type, such as V100")
    cpus: Amount = Field(description="CPU cores of a machine")
    memory_gib: Amount = Field(description="memory of a machine, GiB")
    usd_per_hour: Amount | None = Field(description="null is unknown and counts as the dearest")
    region: str = Field("", description="where it is")
    spot: bool = Field(False, description="the cloud may take it away at any time")
    boot: Seconds = Field(30.0, description="from the launch until the machine is up")
    setup: Seconds = Field(60.0, description="from then until it takes jobs")
    capacity: int | None = Field(
        None, ge=0, le=MOST, description="machines of it at a time, one more is sold out; null is no limit"
    )

    def offer(self) -> LocalOffer:
        """As the embedded cloud sells it."""
        price = None if self.usd_per_hour is None else Money.of(self.usd_per_hour)
        resources = Resources.of(self.gpus, self.cpus, self.memory_gib, self.gpu_type)
        offer = Offer(self.name, resources, price, self.region, self.spot)
        return LocalOffer(offer, self.boot, self.setup, self.capacity)


class CloudConfig(Section):
    """The rented machines."""

    kind: Literal["local"] = Field("local", description="local: machines are make-believe, bills are not")
    offers: list[OfferConfig] | None = Field(
        None, description="null is a small EC2 catalog; an empty list is no cloud at all"
    )
    lease: Lease = Field(
        900.0,
        description="a machine ends by itself this long after we are last heard of, on the wall's clock",
    )

    def catalog(self) -> tuple[LocalOffer, ...]:
        """What the embedded cloud sells."""
        return EC2_CATALOG if self.offers is None else tuple(offer.offer() for offer in self.offers)

    @field_validator("offers")
    @classmethod
    def _names_once(cls, offers: list[OfferConfig] | None) -> list[OfferConfig] | None:
        _refuse_twice(offer.name for offer in offers or ())
        return offers


def _refuse_twice(names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"the name {twice!r} stands for two of them; give each its own")


class ClockConfig(Section):
    """The scheduler's clock."""

    speed: float = Field(
        1.0,
        ge=0.001,
        le=10_000,
        allow_inf_nan=False,
        description="1 is real time; more makes waits and bills run faster",
    )


class Config(Section):
    """All of starburst.yaml."""

    policy: PolicyConfig = Field(PolicyConfig(), description="when jobs wait, leave, and come home")
    cluster: ClusterConfig = Field(LocalClusterConfig(), description="the on-prem cluster")
    cloud: CloudConfig = Field(CloudConfig(), description="the rented machines")
    clock: ClockConfig = Field(ClockConfig(), description="the scheduler's clock")


def load_config(path: Path | None) -> Config:
    """The config of a file; all defaults without one.

    Raises:
        UserError: the file cannot be read, or something in it is wrong; every problem is a line.
    """
    if path is None:
        return Config()
    try:
        documents = chunks(path.read_bytes().decode())
        data = load(documents[0], str(path), 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; write YAML in UTF-8") from None
    except ManifestErrors as errors:
        raise UserError(str(errors)) from None
    if len(documents) > 1:
        raise UserError(f"{path}, document 2: a config is one document; remove the --- between them")
    return parse_config({} if data is None else data, str(path))


def parse_config(data: object, source: str) -> Config:
    """A config from plain data; `source` stands in the errors.

    Raises:
        UserError: something is wrong; every problem is a line.
    """
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = dict.fromkeys(_line(source, problem) for problem in error.errors())
        raise UserError("\n".join(lines)) from None


def _line(source: str, problem: Any) -> str:
    kind, place = problem["type"], problem["loc"]
    if place[:1] == ("cluster",):
        place = (place[0], *place[2:])  # pydantic names the kind of cluster, the file has no such level
    if kind == "extra_forbidden":
        known = _section(problem["loc"][:-1]).model_fields
        mend = did_you_mean(str(place[-1]), known, f"the fields here are {', '.join(known)}")
        return f"{source}: {_path(place)}: there is no such field; {mend}"
    value = "" if kind == "missing" else shown(problem["input"])
    mend = _mend(problem)
    return ": ".join(part for part in (source, _path(place), value, mend) if part)


def _path(place: Sequence[str | int]) -> str:
    """cluster.nodes[0].gpus"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


#: What to write instead, by the kind of problem; the words in braces are of pydantic's context.
MENDS = {
    "missing": "is missing; add it",
    "int_type": "must be a whole number, without quotes",
    "float_type": "must be a number, without quotes",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false, without quotes",
    "string_type": "must be text; put it in quotes",
    "string_pattern_mismatch": "must be letters, digits, dashes, dots and underscores, the ends no signs",
    "string_too_long": "must be at most {max_length} characters",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:.0f}",
    "literal_error": "must be {expected}",
    "list_type": "must be a list; begin each element with a dash",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of fields to values",
    "too_short": "must not be empty",
    "value_error": "{error}",
}


def _mend(problem: Any) -> str:
    template = MENDS.get(problem["type"])
    return str(problem["msg"]) if template is None else template.format(**problem.get("ctx", {}))


#: Fields that open a section of their own.
SECTIONS: dict[str, type[BaseModel]] = {
    "policy": PolicyConfig,
    "local": LocalClusterConfig,
    "kubernetes": KubernetesConfig,
    "cloud": CloudConfig,
    "clock": ClockConfig,
    "nodes": NodeConfig,
    "offers": OfferConfig,
}


def _section(place: Sequence[str | int]) -> type[BaseModel]:
    """The model that stands at a path of the config."""
    return next((SECTIONS[part] for part in reversed(place) if isinstance(part, str)), Config)
