"""The sections `cluster` and `cloud` of starburst.yaml."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from starburst.app.config.fields import (
    MOST,
    BindLimit,
    Gpus,
    Lease,
    Name,
    Namespace,
    NonNegative,
    PodSecurity,
    Seconds,
    Section,
    file_path,
    volume_source,
)
from starburst.app.config.run_as import RunsJobs
from starburst.clouds.catalog import EC2_CATALOG, LocalOffer
from starburst.clouds.sky.cloud_facts import possible
from starburst.clouds.sky.place_patterns import SKY_CLOUDS, known_cloud, pattern_of
from starburst.domain.cloud import Offer
from starburst.domain.gpu_types import gpu_type
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from translator.carried import CloudStorage
from translator.embedded_nodes import node_labels
from translator.field import Field as ManifestField
from translator.field import ManifestReport
from translator.manifests.gpus import gpu_type_of
from translator.manifests.pod_security import RESTRICTED
from translator.tasks.storage.cloud_volumes import read_stores


class NodeConfig(Section):
    """One node of the embedded cluster, or `count` alike."""

    name: Name = Field(description="unique among nodes")
    count: int = Field(1, ge=1, le=10_000, description="more than one are named name-0, name-1, …")
    gpus: Gpus = Field(0, description="GPUs of each")
    gpu_type: str = Field("", description="their type, such as V100")
    cpus: NonNegative = Field(8.0, description="CPU cores of each")
    memory_gib: NonNegative = Field(32.0, description="memory of each, GiB")
    labels: dict[str, str] = Field(
        {}, description="what nodeSelector and node affinity may ask for, beside name, processor and GPUs"
    )

    def nodes(self) -> list[Node]:
        """The nodes of the entry."""
        kind = gpu_type(self.gpu_type) or self.gpu_type or gpu_type_of(self.labels)
        capacity = Resources.of(self.gpus, self.cpus, self.memory_gib, kind)
        names = [self.name] if self.count == 1 else [f"{self.name}-{i}" for i in range(self.count)]
        machine = platform.machine()
        return [Node(name, capacity, node_labels(name, capacity, machine, self.labels)) for name in names]


def _kind(value: object) -> object:
    if value not in CLUSTERS:
        raise ValueError(f"must be {' or '.join(map(repr, CLUSTERS))}")
    return value


#: Description of the field usd_per_gpu_hour.
GPU_HOUR = "what a GPU of the cluster is reckoned at in reports; null leaves it out of them"


class LocalClusterConfig(RunsJobs):
    """The embedded cluster."""

    kind: Annotated[Literal["local"], BeforeValidator(_kind)] = Field(
        "local", description="local: jobs are processes of this machine"
    )
    nodes: list[NodeConfig] = Field(
        default=[NodeConfig(name="node", count=2, gpus=4, gpu_type="V100", cpus=32, memory_gib=244)],
        min_length=1,
        description="what the cluster has",
    )
    usd_per_gpu_hour: NonNegative | None = Field(None, description=GPU_HOUR)

    @field_validator("nodes")
    @classmethod
    def _names_once(cls, nodes: list[NodeConfig]) -> list[NodeConfig]:
        _refuse_twice(node.name for entry in nodes for node in entry.nodes())
        return nodes

    def known_nodes(self) -> tuple[Node, ...]:
        """The nodes of the config."""
        return tuple(node for entry in self.nodes for node in entry.nodes())


class KubernetesConfig(Section):
    """A Kubernetes cluster. Its nodes are its own truth."""

    kind: Literal["kubernetes"] = Field("kubernetes", description="kubernetes: jobs are its Jobs")
    kubeconfig: Annotated[str, AfterValidator(file_path)] | None = Field(
        None, description="a file; null is KUBECONFIG, else ~/.kube/config, else the pod's own account"
    )
    context: str | None = Field(None, description="of the kubeconfig; null is its current one")
    namespace: Namespace = Field("default", description="of submitted jobs whose manifest names none")
    namespaces: list[Namespace] = Field(
        [], description="others that submitted jobs may name; more by queues[].namespaces and by token"
    )
    pod_security: PodSecurity = Field(
        RESTRICTED,
        description="how much of a node jobs of those who are no admins may ask for, by Kubernetes' Pod "
        "Security Standards: restricted, baseline or privileged",
    )
    checkpoints: Annotated[dict[str, Any], AfterValidator(volume_source)] | None = Field(
        None,
        description="where jobs keep their checkpoints, as a Kubernetes volume: hostPath, "
        "persistentVolumeClaim or nfs with its fields; null is nowhere",
    )
    checkpoints_here: Annotated[str, AfterValidator(file_path)] | None = Field(
        None,
        description="where this machine sees that volume: checkpoints of cloud runs are handed over there; "
        "null keeps them apart, in the home",
    )
    bind_limit: BindLimit = Field(
        60.0, description="a placed run whose pods are not bound in this time is taken back"
    )
    start_limit: BindLimit = Field(
        1800.0,
        description="a run whose containers are not up in this time is taken back; one of which they say "
        "what is wrong, as ErrImagePull, after bind_limit",
    )
    user_from: Literal["annotation", "namespace"] = Field(
        "annotation",
        description="whose adopted jobs are: annotation: as their starburst.io/user says, which whoever may "
        "create them can write; namespace: their namespace's, whatever they say",
    )
    usd_per_gpu_hour: NonNegative | None = Field(None, description=GPU_HOUR)
    lease: bool | None = Field(
        None,
        description="of several Starbursts the one that holds a Lease leads, the others stand by: true; "
        "false: no other one is looked for; null: true if this account may write that Lease",
    )
    lease_name: Name = Field(
        "starburst", description="of the Lease; a Starburst with other queues beside this one has another"
    )
    lease_namespace: Namespace | None = Field(
        None,
        description="of the Lease; null: this pod's, starburst-system if it is there, or kube-system",
    )

    @field_validator("checkpoints_here")
    @classmethod
    def _here_of_what(cls, here: str | None, info: ValidationInfo) -> str | None:
        if here is not None and info.data.get("checkpoints") is None:
            raise ValueError("needs checkpoints: the volume that is seen there")
        return here

    def known_nodes(self) -> tuple[Node, ...]:
        """Empty: nodes are read from the cluster."""
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
    cpus: NonNegative = Field(description="CPU cores of a machine")
    memory_gib: NonNegative = Field(description="memory of a machine, GiB")
    usd_per_hour: NonNegative | None = Field(description="null is unknown and counts as the dearest")
    cloud: str = Field("", description="whose it is, such as aws, for jobs that name a cloud")
    region: str = Field("", description="where it is")
    spot: bool = Field(False, description="the cloud may take it away at any time")
    boot: Seconds = Field(30.0, description="from the launch until the machine is up")
    setup: Seconds = Field(60.0, description="from then until it takes jobs")
    capacity: int | None = Field(
        None, ge=0, le=MOST, description="machines of it at a time, one more is sold out; null is no limit"
    )

    def offer(self) -> LocalOffer:
        """The offer as the embedded cloud sells it."""
        price = None if self.usd_per_hour is None else Money.of(self.usd_per_hour)
        resources = Resources.of(self.gpus, self.cpus, self.memory_gib, self.gpu_type)
        up_s = self.boot + self.setup
        offer = Offer(self.name, resources, price, self.region, self.spot, ready_s=up_s, cloud=self.cloud)
        return LocalOffer(offer, self.boot, self.setup, self.capacity)


class PriceLimits(Section):
    """What machines may cost."""

    max_usd_per_hour: NonNegative | None = Field(
        None, description="no machine that costs more, or nobody knows what, is rented; null is no limit"
    )
    max_usd_on_failures: NonNegative | None = Field(
        25.0,
        description="a job whose command fails within 5 min of its start, try after try, has failed for good "
        "once such tries cost this, whatever retries it has left; null is no limit",
    )


class ReapedCloud(PriceLimits):
    """Which machines a cloud's reaper ends.

    A quarter of an hour is one lease: a machine that nobody claims would by then have ended by itself, were
    its dead-man switch in order, and whoever lives has had dozens of looks to claim it.
    """

    reap_after: Seconds = Field(
        900.0, description="a machine of this home's store that nothing there claims is ended at this age"
    )
    reap_others: bool = Field(
        False,
        description="also end machines of other stores whose lease has passed; false: only say so in the log",
    )


def _known_cloud(value: object) -> object:
    if value not in CLOUDS:
        raise ValueError(f"must be {', '.join(map(repr, CLOUDS[:-1]))} or {CLOUDS[-1]!r}")
    return value


class CloudConfig(ReapedCloud, RunsJobs):
    """The embedded cloud, or none."""

    kind: Annotated[Literal["local", "none"], BeforeValidator(_known_cloud)] = Field(
        "local",
        description="local: machines are make-believe, bills are not; none: nothing is rented, the default "
        "beside a Kubernetes cluster",
    )
    offers: list[OfferConfig] | None = Field(
        None, description="null is a small EC2 catalog; an empty list is no cloud at all"
    )
    trust_users: bool = Field(
        False,
        description="beside a Kubernetes cluster: whoever may create Jobs there may run commands on this "
        "machine, as the user that runs Starburst",
    )
    lease: Lease = Field(
        900.0,
        description="a machine ends by itself this long after we are last heard of, on the wall's clock",
    )
    reap_after: Seconds = Field(0.0, description="as for any cloud; 0, for nobody shares this one")

    def catalog(self) -> tuple[LocalOffer, ...]:
        """The offers of the embedded cloud."""
        if self.kind == "none":
            return ()
        return EC2_CATALOG if self.offers is None else tuple(offer.offer() for offer in self.offers)

    def known_offers(self) -> tuple[Offer, ...]:
        """The offers of the config."""
        return tuple(entry.offer for entry in self.catalog())

    @field_validator("offers")
    @classmethod
    def _names_once(cls, offers: list[OfferConfig] | None, info: ValidationInfo) -> list[OfferConfig] | None:
        if offers and info.data.get("kind") == "none":
            raise ValueError("kind: none has no offers; leave them out, or write kind: local")
        _refuse_twice(offer.name for offer in offers or ())
        return offers


def _volumes(mapping: dict[str, Any]) -> dict[str, Any]:
    report = ManifestReport("", 0)
    read_stores(ManifestField(mapping, "", report))
    if report.errors:
        raise ValueError("; ".join(map(str, report.errors)))
    return mapping


class SkyConfig(ReapedCloud):
    """Real clouds, by SkyPilot."""

    kind: Literal["skypilot"] = Field("skypilot", description="skypilot: real machines, real bills")
    clouds: list[Annotated[str, AfterValidator(known_cloud)]] = Field(
        ["aws"], min_length=1, description="where to rent, by SkyPilot's names"
    )
    allow: list[str] = Field(
        [],
        description="only there: CLOUD, CLOUD/REGION or CLOUD/REGION/TYPE, each part a pattern such as "
        "*/us-*/p5.*; empty is everywhere",
    )
    deny: list[str] = Field([], description="never there, whatever allow says; patterns of the same form")
    regions: list[str] = Field([], description="only in these regions; empty is all")
    instance_types: list[str] = Field([], description="only these types; empty is all, which is a lot")
    spot: Literal["never", "also", "only"] = Field(
        "never", description="machines that the cloud may take away at any time"
    )
    prices: str | None = Field(
        None, description="a CSV file in the form of SkyPilot's catalogs instead of them; of the first cloud"
    )
    extra_usd_per_hour: NonNegative = Field(
        0.0,
        description="what each machine costs beside the price in the catalog: its disk and its address, for "
        "example; counts in decisions, caps and bills",
    )
    lease: Lease = Field(
        900.0, description="runs on a machine end by themselves this long after we are last heard of"
    )
    idle_minutes: int = Field(
        5, ge=1, le=1440, description="and the machine gives itself back so many minutes after that"
    )
    launch_limit: Seconds = Field(
        1800.0, gt=0, description="a launch whose machine takes no runs after this is given up and has failed"
    )
    bucket: str | None = Field(
        None,
        description="s3://… or gs://…: mounted on every machine, for checkpoints; null copies them by ssh",
    )
    network_tier: Literal["standard", "best"] = Field(
        "standard",
        description="best: the machines of a gang have the fastest network that SkyPilot sets up for them "
        "(EFA on AWS, GPUDirect-TCPX on GCP's a3 machines); types without it are rented as before",
    )
    volumes: Annotated[dict[str, Any], AfterValidator(_volumes)] = Field(
        {},
        description="what stands in for volumes of Kubernetes jobs, mounted on every machine: pvc/NAME, "
        "nfs:SERVER:/PATH or hostPath:/PATH to s3://…, {source, mode} or {volume: NAME}",
    )
    api_server: str | None = Field(
        None, description="address of SkyPilot's API server; null is SKYPILOT_API_SERVER_ENDPOINT, or its own"
    )

    @field_validator("allow", "deny")
    @classmethod
    def _of_these_clouds(cls, patterns: list[str], info: ValidationInfo) -> list[str]:
        return [pattern_of(pattern, info.data.get("clouds") or SKY_CLOUDS) for pattern in patterns]

    @field_validator("bucket", "volumes", "spot")
    @classmethod
    def _can_be_had_there(cls, asked: Any, info: ValidationInfo) -> Any:
        return possible(info.field_name, asked, info.data.get("clouds", ()))

    def stores(self) -> dict[str, CloudStorage]:
        """The object stores that replace volumes."""
        return read_stores(ManifestField(self.volumes, "", ManifestReport("", 0)))

    def known_offers(self) -> tuple[Offer, ...]:
        """Empty: offers are read from SkyPilot."""
        return ()


def _cloud_kind(cloud: object) -> str:
    kind = cloud.get("kind") if isinstance(cloud, dict) else getattr(cloud, "kind", None)
    return "skypilot" if kind == "skypilot" else "embedded"


CloudSection: TypeAlias = Annotated[
    Annotated[CloudConfig, Tag("embedded")] | Annotated[SkyConfig, Tag("skypilot")],
    Discriminator(_cloud_kind),
]
CLOUDS = ("local", "skypilot", "none")


def with_cloud(data: object) -> object:
    """The data of a config; beside a cluster that is not embedded, `cloud` defaults to none."""
    if isinstance(data, dict) and "cloud" not in data and _kind_of(data.get("cluster")) != "local":
        return data | {"cloud": {"kind": "none"}}
    return data


def runs_users_here(cluster: ClusterConfig, cloud: CloudSection) -> bool:
    """Whether users of a Kubernetes cluster have commands run on this machine, by the embedded cloud."""
    return (
        not isinstance(cluster, LocalClusterConfig)
        and isinstance(cloud, CloudConfig)
        and bool(cloud.catalog())
    )


def _refuse_twice(names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"the name {twice!r} stands for two of them; give each its own")
