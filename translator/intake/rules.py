"""What intake needs to know about the cluster and the cloud to judge a manifest."""

from __future__ import annotations

from dataclasses import dataclass

from translator.carried import Carried
from translator.field import ManifestReport


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """The conditions under which fields of manifests are problems; the default is the embedded cluster."""

    #: The cluster is Kubernetes and runs the manifests themselves.
    native: bool = False
    #: What offloaded jobs get from the cluster; None is nothing.
    carries: Carried | None = None
    #: There are offers, so that jobs may be offloaded at all.
    offers: bool = True
    #: A job that cannot leave stays on the cluster (policy.cannot_leave: stay); false: it is refused.
    may_stay: bool = True

    def report(self, source: str, document: int) -> ManifestReport:
        """An empty report of a manifest."""
        return ManifestReport(
            source,
            document,
            native=self.native,
            carries=self.carries,
            offers=self.offers,
            may_stay=self.may_stay,
        )


EMBEDDED = IntakeRules()
