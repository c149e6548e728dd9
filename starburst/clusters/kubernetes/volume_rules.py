"""The demands of jobs' claims on the cluster: the nodes that their volumes permit, or why there are none.

Chakra reads claims, volumes and classes in the same way (`starburst.kube.volumes`), so both agree on a node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.core.model.events import VolumesRuled
from starburst.domain.constraints import Term
from starburst.domain.job import CloudChoice, Submission
from starburst.kube.objects import NodeView, PodView
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.demand import ANYWHERE
from starburst.kube.volumes.views import ClaimUse, StorageNeed, claims_of, templates_of
from starburst.runs.ports import AdoptionPort


@dataclass(frozen=True, slots=True)
class JobClaims:
    """The claims of each pod of a job."""

    namespace: str
    uses: tuple[ClaimUse, ...]
    #: What is claimed by a claim that is made with each pod.
    templates: tuple[StorageNeed, ...]


def job_claims(submission: Submission, namespace: str) -> JobClaims | None:
    """The claims of a job's pods; None if it has none, or never runs on the cluster."""
    text = submission.workload.manifest or ""
    if submission.job.cloud is CloudChoice.ONLY or not ("Claim" in text and '"volumes"' in text):
        return None  # most jobs: nothing is parsed
    spec = json.loads(text)["spec"]
    spec = (spec.get("template") or {}).get("spec") or spec
    uses = tuple(use for use in claims_of(spec, submission.job.name) if not use.ephemeral)
    templates = templates_of(spec)
    return JobClaims(namespace, uses, templates) if uses or templates else None


class VolumeRules:
    """The claims of all jobs that are not over, and what is demanded for them."""

    def __init__(self, desk: AdoptionPort, registry: RunRegistry) -> None:
        self.cache = VolumeCache()
        self._desk = desk
        self._registry = registry
        self._claims: dict[str, JobClaims] = {}
        #: The last rule of each job.
        self._ruled: dict[str, VolumesRuled] = {}

    def add(self, job_id: str, claims: JobClaims) -> VolumesRuled:
        """A job is new, or is known from before a restart; returns what holds for it now."""
        self._claims[job_id] = claims
        return self._rule(job_id, claims)

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """An event of the watch of pods."""
        self.cache.pod_changed(old, new)

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """An event of the watch of nodes."""
        self.cache.node_changed(old, new)

    def changes(self) -> Iterable[VolumesRuled]:
        """The rules that are others than before."""
        changed = self.cache.take_changed()
        for job_id, claims in list(self._claims.items()) if changed else ():
            record = self._desk.record(job_id)
            if record is not None and record.phase.is_end:
                del self._claims[job_id]
                self._ruled.pop(job_id, None)
            elif None in changed or any((claims.namespace, use.name) in changed for use in claims.uses):
                before = self._ruled.get(job_id)
                rule = self._rule(job_id, claims)
                if rule != before:
                    yield rule

    def _rule(self, job_id: str, claims: JobClaims) -> VolumesRuled:
        found = self.cache.demand(
            claims.namespace, claims.uses, own=self._own_pods(job_id), templates=claims.templates
        )
        affinity: tuple[Term, ...] = ANYWHERE if found.waits else found.terms
        rule = self._ruled[job_id] = VolumesRuled(job_id, affinity, found.waits)
        return rule

    def _own_pods(self, job_id: str) -> frozenset[str]:
        record = self._desk.record(job_id)
        unit = None if record is None else self._registry.get((job_id, record.attempt))
        return frozenset() if unit is None else frozenset(pod.uid for pod in unit.pods.values())
