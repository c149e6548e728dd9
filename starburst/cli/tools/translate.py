"""`starburst translate`: manifests as SkyPilot tasks, with a report of lost fields."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from starburst.app.config import parse_config
from starburst.app.config.scalars import ConfigLoader
from starburst.app.config.sites import CloudConfig, KubernetesConfig, SkyConfig
from starburst.app.errors import UserError
from starburst.app.wiring.build import offers_of
from starburst.app.wiring.kube_client import connect, need_kubernetes
from starburst.cli.tools.rented import NOTHING_TOLD, MachinesToRent, rented
from starburst.domain.cloud import Offer, OfferRules
from starburst.domain.money import Money
from starburst.visible import visible
from translator.carried import CloudStorage
from translator.errors import ManifestErrors
from translator.fidelity import FidelityLevel, FieldFidelity, Translation
from translator.field import Field, ManifestReport
from translator.intake.kinds import items_of
from translator.kinds.conversion import load_document
from translator.kinds.kind_fidelity import KindReading
from translator.kinds.sbatch.directives import is_batch_script
from translator.manifests.documents import chunks, load
from translator.manifests.references import Reference
from translator.tasks.runtime_values import NotNowError, UnresolvedError
from translator.tasks.skypilot import to_skypilot
from translator.tasks.storage.cloud_volumes import at_home, read_stores
from translator.tasks.task_yaml import as_yaml

_COLOURS = {
    FidelityLevel.KEPT: "green",
    FidelityLevel.APPROXIMATED: "yellow",
    FidelityLevel.DROPPED: "yellow",
    FidelityLevel.REFUSED: "bold red",
}


class TaskFormat(str, Enum):
    """The values of `-o`."""

    YAML = "yaml"
    JSON = "json"


def translate(
    file: Annotated[
        str, typer.Argument(help="YAML of Kubernetes or SkyPilot, or an sbatch script; - is stdin.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 if anything is lost.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Config file; its cloud.volumes stand in for volumes, its Kubernetes cluster is asked for "
            "ConfigMaps and Secrets.",
        ),
    ] = None,
    output: Annotated[TaskFormat, typer.Option("-o", "--output", help="Output format.")] = TaskFormat.YAML,
) -> None:
    """Print the SkyPilot tasks that manifests become. What is lost is reported on standard error."""
    settings = None if config is None else _settings(config)
    stores = {} if settings is None else _stores(settings)
    source = "<stdin>" if file == "-" else file
    readings = list(_readings(_text(file, source), source))
    manifests = [reading.manifest for reading in readings]
    if not manifests:
        raise UserError(f"{source}: there is no Job or Pod in it; write at least one")
    cluster = None if settings is None else _cluster(settings)
    stores = at_home(stores, "default" if cluster is None else cluster.namespace)
    tasks = _translated(manifests, stores, cluster)
    translations = [reading.told(each) for reading, each in zip(readings, tasks, strict=True)]
    rented = _rented(readings, settings, stores)
    if output is TaskFormat.JSON:
        keys = [_keys(found, rents) for found, rents in zip(translations, rented, strict=True)]
        print(json.dumps(keys, indent=2, ensure_ascii=False))
    else:
        print("---\n".join(_yaml(found) for found in translations if found.task), end="")
    sys.stdout.flush()
    for manifest, found, rents in zip(manifests, translations, rented, strict=True):
        _tell(_title(manifest) if len(manifests) > 1 else "", found.report)
        if rents.told:
            print(visible(f"Starburst itself would rent {rents.told}"), file=sys.stderr)
        for line in as_yaml(rents.task).splitlines() if rents.task else ():
            print(visible(f"  {line}"), file=sys.stderr)
    if any(found.refused(strict=strict) for found in translations):
        raise typer.Exit(2)


def _text(file: str, source: str) -> str:
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as error:
        raise UserError(f"{source}: cannot be read ({error.strerror}); name an existing YAML file") from None
    except UnicodeDecodeError:
        raise UserError(f"{source}: is not a text file; write YAML in UTF-8") from None


def _readings(text: str, source: str) -> Iterator[KindReading]:
    """The manifests of all documents, with Lists expanded, and other kinds read as Jobs."""
    if is_batch_script(text):
        try:
            yield KindReading.of_script(text, source)
        except ManifestErrors as errors:
            raise UserError(str(errors)) from None
        return
    for index, chunk in enumerate(chunks(text), 1):
        try:
            value: Any = load_document(chunk, source, index)
        except ManifestErrors as errors:
            raise UserError(str(errors)) from None
        for manifest in [] if value is None else items_of(value):
            if not isinstance(manifest, dict):
                raise UserError(
                    f"{source}, document {index}: not a manifest; write a batch/v1 Job or a v1 Pod"
                )
            try:
                yield KindReading.of(Field(manifest, "", ManifestReport(source, index)))
            except ManifestErrors as errors:
                raise UserError(str(errors)) from None


def _translated(
    manifests: Sequence[Mapping[str, Any]],
    stores: Mapping[str, CloudStorage],
    cluster: KubernetesConfig | None,
) -> list[Translation]:
    """The tasks, with defaults of the cluster if it answers; otherwise the reports say so."""
    if cluster is None:
        return [to_skypilot(manifest, volumes=stores) for manifest in manifests]
    wanted: dict[Reference, None] = {}
    given: dict[str, Any] = {"volumes": stores, "namespace": cluster.namespace}
    for manifest in manifests:
        to_skypilot(manifest, **given, resolve=wanted.setdefault)
    if wanted:
        need_kubernetes()
        from starburst.clusters.kubernetes.config_data import ClusterValues  # noqa: PLC0415 - its needs are an extra

        try:
            values = ClusterValues(lambda: connect(cluster), cluster.namespace)
            given["resolve"] = asyncio.run(values.read(wanted)).get
        except (NotNowError, UnresolvedError) as error:
            given["unasked"] = f"is in the cluster, which did not tell ({error})"
    return [to_skypilot(manifest, **given) for manifest in manifests]


@dataclass(frozen=True, slots=True)
class _Settings:
    """The parts of a config file that translation uses."""

    path: Path
    data: Any


def _settings(path: Path) -> _Settings:
    first, *others = chunks(_text(str(path), str(path)))
    try:
        data = load(first, str(path), 0, ConfigLoader)
    except ManifestErrors as errors:
        raise UserError(str(errors)) from None
    if others:
        raise UserError(f"{path}, document 2: a config is one document; remove the --- between them")
    return _Settings(path, data)


def _cluster(settings: _Settings) -> KubernetesConfig | None:
    """The section `cluster` if it is a Kubernetes cluster."""
    section = settings.data.get("cluster") if isinstance(settings.data, dict) else None
    found = parse_config({} if section is None else {"cluster": section}, str(settings.path)).cluster
    return found if isinstance(found, KubernetesConfig) else None


def _rented(
    readings: Sequence[KindReading], settings: _Settings | None, stores: Mapping[str, CloudStorage]
) -> list[MachinesToRent]:
    """What would be rented for each gang, if the config has offers."""
    cloud = None if settings is None else _cloud(settings)
    offers = () if cloud is None else _offers(cloud)
    if cloud is None or not offers:
        return [NOTHING_TOLD] * len(readings)
    return [
        rented(reading, offers, cloud, stores) if reading.manifest else NOTHING_TOLD for reading in readings
    ]


def _cloud(settings: _Settings) -> CloudConfig | SkyConfig | None:
    """The section `cloud`; None if it has no offers."""
    section = settings.data.get("cloud") if isinstance(settings.data, dict) else None
    if not isinstance(section, dict) or not section.keys() & {"kind", "offers"}:
        return None
    others = {key: value for key, value in section.items() if key != "volumes"}  # read by `_stores`
    return parse_config({"cloud": others}, str(settings.path)).cloud


def _offers(cloud: CloudConfig | SkyConfig) -> Sequence[Offer]:
    """Its offers; none if they cannot be read here."""
    most = cloud.max_usd_per_hour
    try:
        found = offers_of(cloud)
        return found if most is None else list(filter(OfferRules(ceiling=Money.of(most)).affords, found))
    except UserError as error:
        print(visible(f"what Starburst itself would rent is not known: {error}"), file=sys.stderr)
        return ()


def _stores(settings: _Settings) -> dict[str, CloudStorage]:
    """The field `cloud.volumes`."""
    report = ManifestReport(str(settings.path), 0)
    stores = read_stores(Field(settings.data, "", report).at("cloud").at("volumes"))
    if report.errors:
        raise UserError("\n".join(map(str, report.errors)))
    return stores


def _yaml(found: Translation) -> str:
    """A task as YAML, with a comment if it should not be launched."""
    refused = "".join(f"# refused: {line.field}\n" for line in found.refused())
    return refused + as_yaml(found.without_secrets)


def _keys(found: Translation, rents: MachinesToRent) -> dict[str, Any]:
    """A task as JSON keys, which are stable (docs/cli.md)."""
    report = [
        {"field": line.field, "verdict": line.verdict.value, "text": line.text} for line in found.report
    ]
    told: dict[str, Any] = {"rents": rents.told} if rents.told else {}
    told |= {"launches": rents.task} if rents.task else {}
    return {"task": found.without_secrets or None, "report": report, **told}


def _title(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    return f"{manifest.get('kind') or 'manifest'} {name or 'without a name'}"


def _tell(title: str, report: Sequence[FieldFidelity]) -> None:
    """Print the report: a table on a terminal, otherwise plain lines."""
    if title:
        print(visible(f"{title}:"), file=sys.stderr)
    if sys.stderr.isatty():
        _print_table(report)
        return
    fields = max((len(line.field) for line in report), default=0)
    for line in report:
        print(visible(f"{line.verdict.value:<12}  {line.field:<{fields}}  {line.text}"), file=sys.stderr)


def _print_table(report: Sequence[FieldFidelity]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and of no use in a pipe
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("VERDICT", "FIELD", "WHAT BECAME OF IT"):
        table.add_column(heading, overflow="fold")
    for line in report:
        table.add_row(
            Text(line.verdict.value, _COLOURS[line.verdict]),
            Text(visible(line.field)),
            Text(visible(line.text)),
        )
    Console(stderr=True, highlight=False).print(table)
