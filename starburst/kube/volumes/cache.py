"""All claims, volumes and storage classes as watched, and what they demand of the node of a pod.

Semantics: kube-scheduler's VolumeBinding, VolumeZone, NodeVolumeLimits and, of VolumeRestrictions,
ReadWriteOncePod.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Term
from starburst.kube.objects import NodeView, PodView
from starburst.kube.volumes.attachments import Attachments
from starburst.kube.volumes.demand import (
    CONFLICT,
    NO_SPACE,
    NO_VOLUMES,
    NONE_FREE,
    NOT_MADE,
    TOO_MANY,
    VolumeChoice,
    VolumeDemand,
    VolumeRule,
)
from starburst.kube.volumes.storage_room import StorageRoom
from starburst.kube.volumes.views import (
    NO_PROVISIONER,
    NOWHERE,
    ONE_POD,
    ClaimKey,
    ClaimUse,
    ClaimView,
    CsiNodeView,
    StorageCapacityView,
    StorageClassView,
    StorageNeed,
    VolumeView,
    both_terms,
)


class VolumeCache:
    """The state; a choice that was made here counts before the server has it (`assume`)."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, ClaimView] = {}
        self._volumes: dict[str, VolumeView] = {}
        self._classes: dict[str, StorageClassView] = {}
        self._nodes: dict[str, Mapping[str, str]] = {}
        #: Pods that are bound and not over, by each claim that they use: uid → name and node.
        self._users: defaultdict[ClaimKey, dict[str, tuple[str, str]]] = defaultdict(dict)
        self._attachments = Attachments(self._driver_of)
        self._room = StorageRoom()
        #: Volumes that are chosen for a claim, by name.
        self._assumed: dict[str, ClaimKey] = {}
        #: Nodes for which the provisioner of a claim refused to make its volume, by uid of the claim.
        self._refused: dict[str, frozenset[str]] = {}
        #: Watches, by resource and namespace, that have not listed their objects.
        self.unsynced: set[tuple[str, str]] = set()
        #: Claims whose demand may be another one now; None is any.
        self._changed: set[ClaimKey | None] = set()

    # Events of the watches.

    def claim_changed(self, old: ClaimView | None, new: ClaimView | None) -> None:
        """A claim is new, another or gone."""
        view = new or old
        assert view is not None
        self._changed.add(view.key)
        if view.key in self._users:
            self._attachments.recount()
        if new is None:
            self.claims.pop(view.key, None)
            self._refused.pop(view.uid, None)
            return
        self.claims[view.key] = new
        if new.bound:
            self._refused.pop(view.uid, None)
        elif old is not None and old.selected_node and not new.selected_node:
            self._refused[view.uid] = self._refused.get(view.uid, frozenset()) | {old.selected_node}

    def volume_changed(self, old: VolumeView | None, new: VolumeView | None) -> None:
        """A volume is new, another or gone."""
        view = new or old
        assert view is not None
        if new is None:
            self._volumes.pop(view.name, None)
        else:
            self._volumes[view.name] = new
        self._attachments.recount()
        self._changed.update(None if each is None else each.claim for each in (old, new))

    def class_changed(self, old: StorageClassView | None, new: StorageClassView | None) -> None:
        """A class is new, another or gone."""
        view = new or old
        assert view is not None
        if new is None:
            self._classes.pop(view.name, None)
        else:
            self._classes[view.name] = new
        self._attachments.recount()
        self._changed.add(None)

    def csi_node_changed(self, old: CsiNodeView | None, new: CsiNodeView | None) -> None:
        """The CSINode of a node is new, another or gone."""
        self._attachments.node_changed(old, new)
        if (old.limits if old else ()) != (new.limits if new else ()):
            self._changed.add(None)

    def storage_capacity_changed(
        self, old: StorageCapacityView | None, new: StorageCapacityView | None
    ) -> None:
        """A CSIStorageCapacity is new, another or gone."""
        self._room.changed(old, new)
        self._changed.add(None)

    def node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """A node is new, another or gone."""
        if new is not None:
            self._nodes[new.name] = new.labels
        elif old is not None:
            self._nodes.pop(old.name, None)

    def pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        """A pod is new, another or gone; one that is bound uses its claims until it is over."""
        pod = new or old
        if pod is not None and pod.claims:
            self.use(pod, new.node if new is not None and not new.over else "")

    def use(self, pod: PodView, node: str) -> None:
        """A pod uses its claims on this node; on none for ""."""
        for claim in pod.claims:
            key = (pod.namespace, claim.name)
            users = self._users[key]
            _, before = users.pop(pod.uid, ("", ""))
            if node:
                users[pod.uid] = (pod.name, node)
            if not users:
                del self._users[key]
            if before == node:
                continue
            self._changed.add(key)
            for where, pods in ((before, -1), (node, 1)):
                if where:
                    self._attachments.used(where, key, pods)
                    self._changed.update((None,) if self._attachments.limited(where) else ())

    def synced(self, watch: tuple[str, str]) -> None:
        """A watch has listed its objects."""
        if watch in self.unsynced:
            self.unsynced.discard(watch)
            self._changed.add(None)

    def take_changed(self) -> frozenset[ClaimKey | None]:
        """The claims whose demand may have changed since the last call; with None all of them."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    # Demands.

    def demand(
        self,
        namespace: str,
        uses: Iterable[ClaimUse],
        *,
        own: Collection[str] = (),
        templates: Iterable[StorageNeed] = (),
    ) -> VolumeDemand:
        """What these claims demand of a node.

        Args:
            own: uids of the pods that it is asked for.
            templates: what claims will ask for that are made with the pod, where there is no pod yet.
        """
        uses, templates = tuple(uses), tuple(templates)
        missing = {resource for resource, where in self.unsynced if where in ("", namespace)}
        if missing and (uses or templates):
            return VolumeDemand(
                waits=f"waits for its claims: the server has not listed {', '.join(sorted(missing))} yet"
            )
        rules: list[VolumeRule] = []
        unbound: list[ClaimKey] = []
        for use in uses:
            key = (namespace, use.name)
            claim = self.claims.get(key)
            why = self._why_waits(claim, use, own)
            if why or claim is None:
                return VolumeDemand(waits=f"waits for claim {use.name}: {why}")
            if claim.bound:
                terms = self._volumes[claim.volume].affinity
                rules += [VolumeRule(terms, CONFLICT)] if terms else []
                continue
            unbound.append(key)
            rules += self._rules_of_unbound(claim)
        classes = [(need, self._classes.get(self._class_name(need))) for need in templates]
        for need, found in classes:
            if found is not None and found.waits:
                rules += self._binding_rules(found, need, None)
        made = Counter(found.provisioner for _, found in classes if found is not None)
        rules += self._attach_rules({(namespace, use.name) for use in uses}, made)
        known = tuple(dict.fromkeys(rules))
        return VolumeDemand(known, tuple(dict.fromkeys(unbound))) if known or unbound else NO_VOLUMES

    def _attach_rules(self, claims: Collection[ClaimKey], made: Counter[str]) -> Iterator[VolumeRule]:
        """Not the nodes that take no more volumes of a driver; `made`: volumes to come, by driver."""
        by_driver: defaultdict[str, set[ClaimKey]] = defaultdict(set)
        for key in claims:
            by_driver[self._driver_of(key)].add(key)
        for driver in sorted({*by_driver, *made}):
            full = self._attachments.full(driver, by_driver[driver], made[driver])
            if full:
                yield VolumeRule(((Requirement(NODE_NAME, "NotIn", full),),), TOO_MANY)

    def _driver_of(self, key: ClaimKey) -> str:
        """The CSI driver of a claim, also of one whose volume is still to be made."""
        claim = self.claims.get(key)
        if claim is None:
            return ""
        volume = self._volumes.get(claim.volume)
        if volume is not None:
            return volume.driver
        found = self._classes.get(claim.need.storage_class)
        return "" if found is None else found.provisioner

    def _why_waits(self, claim: ClaimView | None, use: ClaimUse, own: Collection[str]) -> str:
        """Why no node will do for a claim, in the words that follow "waits for claim x: "."""
        if claim is None:
            return "it is not there yet" if use.ephemeral else "there is none of that name"
        if use.ephemeral and claim.owner not in own:
            return "it was not made for this pod, which needs one of that name"
        if claim.deleting:
            return "it is being deleted"
        if claim.phase == "Lost":
            return f"its volume {claim.volume} is lost"
        if ONE_POD in claim.need.modes:
            others = [name for uid, (name, _) in self._users.get(claim.key, {}).items() if uid not in own]
            if others:
                return f"it is {ONE_POD}, and pod {others[0]} uses it"
        if claim.bound:
            return "" if claim.volume in self._volumes else f"its volume {claim.volume} is not there"
        name = claim.need.storage_class
        if name and name not in self._classes and not claim.volume:
            return f"it is not bound, and there is no StorageClass {name}"
        waits = name in self._classes and self._classes[name].waits
        return "" if waits and not claim.volume else "it is not bound"

    def _rules_of_unbound(self, claim: ClaimView) -> list[VolumeRule]:
        if claim.selected_node:
            terms: tuple[Term, ...] = ((Requirement(NODE_NAME, "In", (claim.selected_node,)),),)
            return [VolumeRule(terms, NONE_FREE)]
        rules = self._binding_rules(self._classes[claim.need.storage_class], claim.need, claim)
        refused = self._refused.get(claim.uid, frozenset())
        if refused:
            wanted = [
                name
                for name, labels in self._nodes.items()
                if all(rule.admits(name, labels) for rule in rules)
            ]
            if refused.issuperset(wanted):
                del self._refused[claim.uid]  # each had its turn: all are tried again
            else:
                avoid = Requirement(NODE_NAME, "NotIn", tuple(sorted(refused)))
                rules.append(VolumeRule(((avoid,),), NOT_MADE))
        return rules

    def _binding_rules(
        self, storage_class: StorageClassView, need: StorageNeed, claim: ClaimView | None
    ) -> list[VolumeRule]:
        """Nodes on which a free volume holds the need, or for which one may be made."""
        volumes, may_make = self._options(storage_class, need, claim)
        options = [volume.affinity for volume in volumes]
        if may_make:
            options.append(self._may_be_made(storage_class, need))
        if any(not terms for terms in options):
            return []
        scarce = may_make and self._room.terms(storage_class.name, need.size_bytes)
        terms = tuple(term for terms in options for term in terms) or NOWHERE
        return [VolumeRule(terms, NO_SPACE if scarce else NONE_FREE)]

    def _may_be_made(self, storage_class: StorageClassView, need: StorageNeed) -> tuple[Term, ...]:
        """Terms of which a node must match one so that a volume is made for it; empty is any node."""
        room = self._room.terms(storage_class.name, need.size_bytes)
        return both_terms(storage_class.topologies, room)

    def _options(
        self, storage_class: StorageClassView, need: StorageNeed, claim: ClaimView | None
    ) -> tuple[list[VolumeView], bool]:
        """The volumes that a claim may get, and whether one may be made; one kept for it is the only one."""
        free = list(self._free(need, claim))
        kept = [volume for volume in free if claim is not None and _is_kept_for(volume, claim)]
        return (kept, False) if kept else (free, storage_class.provisioner != NO_PROVISIONER)

    def _class_name(self, need: StorageNeed) -> str:
        defaults = (name for name, each in self._classes.items() if each.is_default)
        return need.storage_class or next(defaults, "")

    def _free(self, need: StorageNeed, claim: ClaimView | None) -> Iterator[VolumeView]:
        """Free volumes that hold a need, or that are kept for this claim."""
        labels_of = ((volume, dict(volume.labels)) for volume in self._volumes.values())
        for volume, labels in labels_of:
            kept = claim is not None and _is_kept_for(volume, claim)
            free = volume.claim is None and volume.phase in ("Available", "")
            taken = self._assumed.get(volume.name)
            if volume.deleting or not (kept or free) or (taken and (claim is None or taken != claim.key)):
                continue
            if (
                volume.need.storage_class == need.storage_class
                and volume.need.volume_mode == need.volume_mode
                and volume.need.modes >= need.modes
                and volume.need.size_bytes >= need.size_bytes
                and all(each.holds(labels) for each in need.selector)
            ):
                yield volume

    # Choices.

    def choose(self, demand: VolumeDemand, node: str) -> VolumeChoice | None:
        """Volumes on a node for the unbound claims of a demand, or None if there is one without.

        The smallest volume that holds a claim is taken; the smallest claims choose first.
        """
        labels = self.labels(node)
        kept: list[tuple[str, ClaimKey]] = []
        made: list[ClaimKey] = []
        claims = [self.claims[key] for key in demand.unbound if key in self.claims]
        for claim in sorted(claims, key=lambda claim: (claim.need.size_bytes, claim.key)):
            taken = {name for name, _ in kept}
            storage_class = self._classes.get(claim.need.storage_class)
            if storage_class is None:
                return None
            volumes, may_make = self._options(storage_class, claim.need, claim)
            fitting = [
                (volume.need.size_bytes, volume.name)
                for volume in volumes
                if volume.name not in taken and _admits(volume.affinity, node, labels)
            ]
            if fitting and not claim.selected_node:
                kept.append((min(fitting)[1], claim.key))
            elif may_make and _admits(self._may_be_made(storage_class, claim.need), node, labels):
                made.append(claim.key)
            else:
                return None
        return VolumeChoice(node, tuple(kept), tuple(made))

    def assume(self, choice: VolumeChoice) -> None:
        """Count the volumes of a choice as taken."""
        self._assumed.update(choice.kept)
        self._changed.add(None)

    def forget(self, choice: VolumeChoice) -> None:
        """The choice is given up, or the server has it."""
        for name, _ in choice.kept:
            self._assumed.pop(name, None)
        self._changed.add(None)

    def labels(self, node: str) -> Mapping[str, str]:
        """The labels of a node; none of one that is not known."""
        return self._nodes.get(node, {})

    def volume(self, name: str) -> VolumeView | None:
        """A volume by name."""
        return self._volumes.get(name)

    def why_unbound(self, choice: VolumeChoice) -> str | None:
        """Why a choice came to nothing, "" while it is under way, None when all its claims are bound."""
        claims = [self.claims.get(key) for key in choice.claims]
        for key, claim in zip(choice.claims, claims, strict=True):
            if claim is None or claim.deleting:
                return f"claim {key[1]} is gone"
            if choice.node in self._refused.get(claim.uid, ()):
                return f"the volume of claim {key[1]} could not be made for node {choice.node}"
        return None if all(claim is not None and claim.bound for claim in claims) else ""


def _admits(terms: tuple[Term, ...], node: str, labels: Mapping[str, str]) -> bool:
    return Rules(terms).admits(node, labels, ())


def _is_kept_for(volume: VolumeView, claim: ClaimView) -> bool:
    return volume.claim == claim.key and volume.claim_uid in ("", claim.uid)
