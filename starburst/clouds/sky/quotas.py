"""Quotas of the account: how much of a kind of machine it may have in a region at a time.

AWS tells vCPUs by kind of machine (`servicequotas:ListServiceQuotas`), and which quota counts for an instance
type is in a catalog of SkyPilot's. GCP tells GPUs by their type (`compute.regions.get`). Both are asked
read-only, with the credentials where Starburst runs. What they do not tell bounds nothing; other clouds are
not asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import structlog

from starburst.clouds.sky.access.sdk import load
from starburst.clouds.sky.offers import OfferName
from starburst.domain.cloud import Offer

log = structlog.get_logger()

#: Wall seconds for a cloud to accept a connection and to answer, and how often one call is tried.
CONNECT_S, READ_S, TRIES = 3, 10, 2
#: Of Google's rights those to read what there is of Compute Engine.
READ_SCOPE = "https://www.googleapis.com/auth/compute.readonly"
#: Regions that are asked at a time.
AT_A_TIME = 8

#: vCPUs (AWS) or GPUs (GCP) by the code of a quota in one region; a code that is missing is unknown.
RegionQuotas: TypeAlias = "Mapping[str, float]"
#: The code of the quota that counts for an instance type, on spot machines or not; None if unknown.
QuotaCode: TypeAlias = "Callable[[str, bool], str | None]"


class RegionalQuotas(ABC):
    """A cloud's quotas, asked at each reading of the offers; until it answers, the last ones count."""

    def __init__(self, cloud: str, ask: Callable[[str], RegionQuotas]) -> None:
        self._cloud = cloud
        self._ask = ask
        self._known: dict[str, RegionQuotas] = {}
        self._told = ""

    def applied(self, offers: Iterable[Offer]) -> list[Offer]:
        """The offers, `barred` where a quota is smaller than one machine. Blocks while the cloud is asked."""
        found = list(offers)
        self._refresh(sorted({offer.region for offer in found if offer.cloud == self._cloud}))
        return [replace(offer, barred=why) if (why := self._why(offer)) else offer for offer in found]

    def _refresh(self, regions: list[str]) -> None:
        if not regions:
            return
        troubles: list[str] = []
        with ThreadPoolExecutor(AT_A_TIME, "quotas") as pool:
            for first in range(0, len(regions), AT_A_TIME):
                some = regions[first : first + AT_A_TIME]
                failed = sorted(filter(None, pool.map(self._learn, some)))
                troubles += failed
                if len(failed) == len(some):  # the cloud is out of reach
                    break
        if troubles and troubles[0] != self._told:
            log.warning("quotas-unknown", cloud=self._cloud, regions=len(troubles), error=troubles[0])
        self._told = troubles[0] if troubles else ""

    def _learn(self, region: str) -> str:
        """Ask for one region's quotas; why they are not known, or ""."""
        try:
            self._known[region] = self._ask(region)
        except Exception as error:  # the cloud's library's, the network's, or of missing credentials
            said = " ".join(str(error).partition("<")[0].split()).rstrip(": ")  # up to a page of HTML
            return f"{region}: {said or type(error).__name__}"
        return ""

    def _why(self, offer: Offer) -> str:
        quotas = self._known.get(offer.region) if offer.cloud == self._cloud else None
        return self._lack(offer, quotas) if quotas else ""

    @abstractmethod
    def _lack(self, offer: Offer, quotas: RegionQuotas) -> str:
        """Why the account cannot rent a machine of this offer; "" if it can, or if that is unknown."""


class AwsQuotas(RegionalQuotas):
    """vCPUs by kind of machine."""

    def __init__(
        self, ask: Callable[[str], RegionQuotas] | None = None, code: QuotaCode | None = None
    ) -> None:
        super().__init__("aws", ask or ask_region)
        self._code = code or code_of

    def _lack(self, offer: Offer, quotas: RegionQuotas) -> str:
        try:
            code = self._code(OfferName.parse(offer.name).instance_type, offer.spot)
        except Exception as error:  # SkyPilot's, of its catalog
            log.warning("quota-unknown", offer=offer.name, error=f"{type(error).__name__}: {error}")
            return ""
        quota = quotas.get(code or "")
        if quota is None or offer.resources.cpus <= quota:
            return ""
        kind = "spot" if offer.spot else "on-demand"
        return (
            f"{offer.name} has {offer.resources.cpus:g} vCPUs, and AWS lets this account have {quota:g} "
            f"of such {kind} machines in {offer.region} (quota {code})"
        )


class GcpQuotas(RegionalQuotas):
    """GPUs by type. Spot machines count against a quota of their own, or the plain one if they have none.

    For on-demand machines of A3 and later families the quota is one per GPU family, which is not among those
    of a region (https://cloud.google.com/compute/resource-usage#gpu_quota).
    """

    def __init__(self, ask: Callable[[str], RegionQuotas] | None = None) -> None:
        super().__init__("gcp", ask or ask_gcp)

    def _lack(self, offer: Offer, quotas: RegionQuotas) -> str:
        instance = OfferName.parse(offer.name).instance_type
        kind = "H100_MEGA" if instance.startswith("a3-mega") else offer.resources.gpu_type.replace("-", "_")
        codes = [f"PREEMPTIBLE_NVIDIA_{kind}_GPUS"] if offer.spot else []
        if not instance.startswith(("a3-", "a4-", "a4x-")):
            codes.append(f"NVIDIA_{kind}_GPUS")
        known = [code for code in codes if code in quotas]
        gpus = offer.resources.gpus
        if not gpus or not known or max(quotas[code] for code in known) >= gpus:
            return ""
        best = max(known, key=lambda code: quotas[code])
        return (
            f"{offer.name} has {gpus} GPUs, and GCP lets this project have {quotas[best]:g} of them in "
            f"{offer.region} (quota {best})"
        )


def within_quotas(offers: Iterable[Offer], quotas: Sequence[RegionalQuotas]) -> list[Offer]:
    """The offers, `barred` where a quota of their cloud is smaller than one machine. Blocks."""
    found = list(offers)
    for each in quotas:
        found = each.applied(found)
    return found


def code_of(instance_type: str, spot: bool) -> str | None:
    """The quota's code in SkyPilot's catalog; None if it has none, or reservations stand in for quotas."""
    load()
    from sky.catalog import aws_catalog  # noqa: PLC0415 - an extra, and slow to import
    from sky.clouds.utils import aws_utils  # noqa: PLC0415

    if aws_utils.use_reservations():
        return None
    code = aws_catalog.get_quota_code(instance_type, spot)
    return code if isinstance(code, str) else None


def ask_region(region: str) -> RegionQuotas:
    """The account's quotas of EC2 in a region.

    Raises:
        Exception: as of boto3.
    """
    load()
    from sky.adaptors import aws  # noqa: PLC0415 - an extra, and slow to import

    limits: Any = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "total_max_attempts": TRIES}
    client = aws.client("service-quotas", region_name=region, **limits)
    return dict(_values(client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")))


def _values(pages: Iterable[Any]) -> Iterator[tuple[str, float]]:
    for page in pages:
        for quota in page.get("Quotas", ()):
            with suppress(KeyError, TypeError, ValueError):
                yield str(quota["QuotaCode"]), float(quota["Value"])


def ask_gcp(region: str) -> RegionQuotas:
    """The project's quotas in a region.

    Raises:
        Exception: as of google-auth and googleapiclient.
    """
    load()
    from sky import clouds  # noqa: PLC0415 - an extra, and slow to import
    from sky.adaptors import gcp  # noqa: PLC0415

    project, http = clouds.GCP.get_project_id(), timed_http()
    compute = gcp.build("compute", "v1", cache_discovery=False, http=http)
    return gcp_quotas(compute, str(project), region)


def timed_http() -> Any:
    """An HTTP client with the default credentials of Google; the library's own waits a minute for an answer.

    Raises:
        google.auth.exceptions.DefaultCredentialsError: there are no credentials.
    """
    import google.auth  # noqa: PLC0415 - come with SkyPilot's extra for GCP
    import google_auth_httplib2  # noqa: PLC0415
    import httplib2  # noqa: PLC0415

    credentials, _ = google.auth.default(scopes=[READ_SCOPE])
    return google_auth_httplib2.AuthorizedHttp(credentials, http=httplib2.Http(timeout=READ_S))


def gcp_quotas(compute: Any, project: str, region: str) -> RegionQuotas:
    """As `ask_gcp`, of a client of GCP's Compute Engine API."""
    answer = compute.regions().get(project=project, region=region).execute(num_retries=TRIES - 1)
    found: dict[str, float] = {}
    for quota in answer.get("quotas", ()):
        with suppress(KeyError, TypeError, ValueError):
            found[str(quota["metric"])] = float(quota["limit"])
    return found
