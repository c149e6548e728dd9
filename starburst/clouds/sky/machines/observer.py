"""What clouds say of instances, and how a machine stands by that, by its listing and by its own answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import anyio
import structlog

from starburst.clouds.sky.access.ports import (
    CloudRefusesError,
    ClusterState,
    ClusterStatus,
    InstanceRef,
    Observation,
    Presence,
    SkyError,
    SkyNotFoundError,
    SkyUnreachableError,
)
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.liveness import Liveness, by_cloud, liveness_of
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.machines.retention import may_have_ended_untold, note_blank
from starburst.clouds.sky.offers import OfferName

log = structlog.get_logger()

#: Wall seconds for a cloud to describe an instance that has just come up, and by which its clock may be off.
MEET_S, CLOCK_SKEW_S = 10.0, 60.0
#: Wall seconds for which a cloud is waited for while it does not answer: EC2 describes an instance for about
#: an hour after its end, so that later it has nothing more to say of the bill.
WORD_S = 7200.0
#: What the journal has of clouds: whether each has ever answered; False: not within `WORD_S`.
ANSWERS = "clouds"

#: Of several machines the first of these decides how the whole stands: without one of them its gang is lost.
WORST_FIRST = (Presence.ENDED, Presence.STOPPED, Presence.ENDING, Presence.ABSENT, Presence.RUNNING)
#: Of several machines one that is so is lost, if others run.
ENDS = (Presence.ENDED, Presence.STOPPED)


class CloudObserver:
    """Asks clouds for the instances of one controller."""

    def __init__(self, context: SkyContext) -> None:
        self._context = context
        self._clouds = context.clouds
        self._begun_at = context.clock.wall()
        journaled = context.journal.get(ANSWERS) or {}
        #: By cloud, as journaled; none: not known yet.
        self._answers: dict[str, bool] = dict(journaled.get("by_cloud") or {})
        #: What was journaled before clouds were told apart.
        self._answered: bool | None = journaled.get("answers")
        #: Clouds that have shown these credentials, in this process, an instance of this controller.
        self._shown: set[str] = set()
        #: Since when, wall s, a cloud answers nothing but errors.
        self._silent_since: dict[str, float] = {}

    async def identify(self, machine: RentedMachine, status: ClusterStatus) -> None:
        """Learn which instance a machine is, if its cloud describes it; of several all or none.

        Further instances of the intent that live are ended first: SkyPilot does not know them. Only an
        instance that the cloud has described once is asked for by its id later: before, an answer "no such
        instance" could mean that these credentials do not see it.
        """
        if status.at is None or len(status.workers_at) != machine.entry.nodes - 1:
            return
        try:
            with anyio.fail_after(MEET_S):
                seen = [await self._clouds.sight(at) for at in (status.at, *status.workers_at)]
                self._note_answer(seen[0].at.provider, seen)
                others = await self._others(machine, seen)
        except (SkyError, TimeoutError) as error:
            if not machine.unnamed:
                log.warning("cloud-not-asked", instance=machine.id, error=str(error) or "no answer")
            machine.unnamed = True
            return
        if any(one.presence is not Presence.RUNNING for one in seen):
            return
        if any([await self._end_other(machine, one) for one in others if one.presence is Presence.RUNNING]):
            return  # a later look tells whether they have ended, and until when they are billed
        machine.entry.at, *machine.entry.workers_at = [one.at for one in seen]
        machine.book(seen, others)
        machine.to_arm = [] if machine.entry.spot else [one.at for one in seen]  # spot ones never stop
        await self.arm(machine)

    async def _others(self, machine: RentedMachine, seen: Sequence[Observation]) -> list[Observation]:
        """Further instances that this intent made: SkyPilot gave them up in its launch."""
        known = {one.at.instance for one in seen}
        try:
            return [one for one in await self._labelled(machine) or () if one.at.instance not in known]
        except ValueError:  # not an offer: it was not launched by us
            return []

    async def _end_other(self, machine: RentedMachine, other: Observation) -> bool:
        """End a further instance of an intent; whether to look at it again: not if that is refused."""
        try:
            with anyio.fail_after(MEET_S):
                await self._clouds.end(other.at)
        except (SkyError, TimeoutError) as error:
            why = str(error) or "no answer"
            log.error("second-instance-lives", instance=machine.id, at=other.at.instance, error=why)
            return not isinstance(error, CloudRefusesError)
        log.warning("second-instance-ended", instance=machine.id, at=other.at.instance)
        return True

    async def arm(self, machine: RentedMachine) -> None:
        """Have what is left of `machine.to_arm` terminated rather than stopped when it shuts itself down."""
        machine.to_arm = [at for at in machine.to_arm if not await self.terminate_on_shutdown(machine, at)]

    async def terminate_on_shutdown(self, machine: RentedMachine, at: InstanceRef) -> bool:
        """Have an instance that shuts itself down terminated; whether its cloud took or refused that."""
        settled = True
        try:
            with anyio.fail_after(MEET_S):
                ends = await self._clouds.arm(at)
            why = "" if ends else f"{at.provider} does not take that order"
        except (SkyError, TimeoutError) as error:
            why = str(error) or "no answer"
            settled = isinstance(error, CloudRefusesError)
        if why:
            log.warning("shut-down-only-stops-it", instance=machine.id, why=why)
        return settled

    async def describe(self, machine: RentedMachine) -> Observation | None:
        """What its cloud says of a machine by its id, or by our labels; None if the cloud does not say.

        Of several machines, those that have ended while others run are lost (`RentedMachine.lose`); then what
        it says of the one that is worst off of the others.
        """
        try:
            if not machine.entry.instances:
                return await self._found(machine)
            seen = await self._sightings(machine, machine.nodes)
        except SkyError as error:
            if machine.entry.instances or not machine.unnamed:
                log.warning("cloud-not-asked", instance=machine.id, error=str(error))
            return None
        ended = {node: one for node, one in seen.items() if one.presence in ENDS}
        others_run = any(one.presence is Presence.RUNNING for one in seen.values())
        if others_run and machine.takes_runs:
            ended |= await self._deleted(machine, seen)
        if ended and others_run and machine.takes_runs:
            machine.lose(ended)
            for one in ended.values():
                await self._end_stopped(one)
        left = [one for node, one in seen.items() if node in machine.nodes]
        return min(left, key=lambda one: WORST_FIRST.index(one.presence), default=None)

    async def _deleted(
        self, machine: RentedMachine, seen: Mapping[int, Observation]
    ) -> dict[int, Observation]:
        """Those of several machines that their cloud does not find and that are silent: GCP deletes some."""
        absent = {node: one for node, one in seen.items() if one.presence is Presence.ABSENT}
        return {node: one for node, one in absent.items() if not await machine.responds([node])}

    async def _found(self, machine: RentedMachine) -> Observation | None:
        """What its cloud says of a machine that it has never described, found by our labels.

        None if it finds none, or if the machine answers though all that it finds are over: these were given
        up in the launch, and the cloud does not find the one that took their place.
        """
        try:
            found = await self._search(machine)
        except ValueError:  # not an offer: it was not launched by us
            return None
        running = next((one for one in found or () if one.presence is Presence.RUNNING), None)
        if running is not None or not found or await machine.responds():
            return running
        return min(found[-machine.entry.nodes :], key=lambda one: WORST_FIRST.index(one.presence))

    async def _end_stopped(self, seen: Observation) -> None:
        """End a lost machine that is only stopped; it ends with the others where that order is for all."""
        try:
            if seen.presence is Presence.STOPPED and seen.at.ends_alone:
                await self._clouds.end(seen.at)
        except SkyError as error:
            log.warning("stopped-machine-stays", at=seen.at.instance, error=str(error))

    async def instances_of(self, machine: RentedMachine) -> list[Observation] | None:
        """All instances that this intent made, also terminated ones, found by our labels if need be.

        None if its cloud cannot be asked, or not searched: that is no word at all, unlike [].

        Raises:
            SkyError: its cloud is waited for (`_is_waited_for`).
        """
        try:
            if machine.entry.instances:
                return list((await self._sightings(machine, range(machine.entry.nodes))).values())
            return await self._search(machine)
        except ValueError:  # not an offer: it was not launched by us
            return []
        except SkyError as error:
            if self._is_waited_for(machine, error):
                raise
            log.warning("cloud-not-asked", instance=machine.id, error=str(error))
            return None

    async def rented_nothing(self, machine: RentedMachine) -> bool:
        """Whether a launch that SkyPilot lists, or has listed, made no instance, by all that is known now.

        A cloud that has shown these credentials nothing yet may be asked with others than SkyPilot has.

        Raises:
            SkyError: its cloud is waited for (`_is_waited_for`).
        """
        entry = machine.entry
        was_seen = entry.access or entry.instances or entry.armed or entry.cloud_began_at is not None
        if was_seen or entry.is_over or not entry.dated or entry.launched_at is None:
            return False
        if may_have_ended_untold(machine):
            return False
        provider = OfferName.parse(entry.offer).infra.partition("/")[0]
        return provider in self._shown and await self.instances_of(machine) == []

    async def note_end(self, machine: RentedMachine) -> None:
        """Book and journal what its cloud says of a machine that SkyPilot cannot end now.

        Its lease or its user may end it meanwhile, and a cloud tells of what has ended for an hour only.
        """
        noted = machine.entry.halted_at, machine.entry.blank_until
        with suppress(SkyError, TimeoutError, OSError), anyio.fail_after(MEET_S):
            await self.instances_of(machine)
            if (machine.entry.halted_at, machine.entry.blank_until) != noted:
                machine.save()

    async def _sightings(self, machine: RentedMachine, nodes: Iterable[int]) -> dict[int, Observation]:
        """What its cloud says of some instances of a machine; {} if their ids are not known."""
        known = machine.entry.instances
        seen = {node: await self._clouds.sight(known[node]) for node in nodes} if known else {}
        if seen:
            self._note_answer(known[0].provider, seen.values())
            machine.book([one for node, one in seen.items() if node not in machine.entry.lost])
        return seen

    async def _search(self, machine: RentedMachine) -> list[Observation] | None:
        """What its cloud finds by the labels of an intent; None if it cannot be searched."""
        labelled = await self._labelled(machine)
        if labelled is None:
            return None
        found = sorted(labelled, key=lambda one: one.launched_at or 0.0)
        last = max(0, len(found) - machine.entry.nodes)
        machine.book(found[last:], found[:last])
        if not found:
            note_blank(machine)
        return found

    async def _labelled(self, machine: RentedMachine) -> list[Observation] | None:
        """The instances with the labels of an intent; None if its cloud cannot be searched."""
        place, entry = OfferName.parse(machine.entry.offer), machine.entry
        provider, _, rest = place.infra.partition("/")
        labels = self._context.naming.intent(machine.id, entry.asked_at if entry.dated else None)
        found = await self._clouds.search(provider, rest.partition("/")[0], labels)
        if found is None:
            return None
        self._note_answer(provider, found)
        # Undated labels may stem from an earlier database; an instance is not older than its intent.
        return [one for one in found if entry.dated or self._is_of(machine, one)]

    def _is_waited_for(self, machine: RentedMachine, error: SkyError) -> bool:
        """Whether a cloud that does not answer now is asked again.

        It is for `WORD_S`, and where it has answered before also while a machine may live of which nobody
        else can tell. It is not where it has never answered, and refuses or was waited for in vain before.
        """
        provider = OfferName.parse(machine.entry.offer).infra.partition("/")[0]
        if self._has_answered(provider) is None:
            if isinstance(error, CloudRefusesError):
                return False
            if self._silent_s(provider) >= WORD_S:
                self._note_answers(provider, False)
        answers, silent_s = self._has_answered(provider), self._silent_s(provider)
        return answers is not False and (silent_s < WORD_S or (answers is True and self._may_live(machine)))

    def _has_answered(self, provider: str) -> bool | None:
        """Whether a cloud has ever answered; False: not within `WORD_S`; None: not known yet."""
        return self._answers.get(provider, self._answered)

    def _note_answer(self, provider: str, seen: Iterable[Observation]) -> None:
        self._silent_since.pop(provider, None)
        if any(one.presence is not Presence.ABSENT for one in seen):
            self._shown.add(provider)
        if not self._has_answered(provider):
            self._note_answers(provider, True)

    def _note_answers(self, provider: str, answers: bool) -> None:
        self._answers[provider] = answers
        with suppress(OSError):  # a full disk changes nothing in this process
            entry = {"key": ANSWERS, "answers": self._answered, "by_cloud": self._answers}
            self._context.journal.put(ANSWERS, entry)

    def _silent_s(self, provider: str) -> float:
        """For how long a cloud has answered nothing, wall seconds; it has just not answered."""
        now = self._context.clock.wall()
        self._silent_since[provider] = min(now, self._silent_since.get(provider, now))
        return now - self._silent_since[provider]

    async def booting(self, machine: RentedMachine) -> list[Observation]:
        """The running instances of an intent that comes up, as far as its cloud can be searched.

        Raises:
            SkyError: the cloud does not answer.
            ValueError: it was not launched by us.
        """
        found = await self._labelled(machine)
        return [one for one in found or () if one.presence is Presence.RUNNING]

    def _is_of(self, machine: RentedMachine, seen: Observation) -> bool:
        if seen.launched_at is None:
            return True
        launched_at = self._context.clock.pace.scheduler_time(seen.launched_at + CLOCK_SKEW_S)
        return launched_at >= machine.entry.asked_at

    async def judge(
        self,
        machine: RentedMachine,
        seen: Observation | None,
        listed: ClusterState | None,
        *,
        searched: bool = True,
    ) -> Liveness:
        """How a machine stands; `listed` is its state in a refreshed listing.

        The machine itself is asked after its cloud was: an answer from before would prove nothing.
        `searched`: its cloud has told what it finds by our labels.
        """
        presence = None if seen is None else seen.presence
        by_id = by_cloud(presence)
        if by_id is not Liveness.UNKNOWN:
            return by_id
        over = machine.entry.taken_down or self._switch_must_have_fired(machine)
        if not over and not machine.entry.ready:
            over = searched or await self._launch_left_nothing(machine)
        asks = listed is None or presence in (Presence.ABSENT, Presence.ENDING)
        return liveness_of(presence, listed, answers=asks and await machine.responds(), surely_over=over)

    async def _launch_left_nothing(self, machine: RentedMachine) -> bool:
        """Whether a launch that SkyPilot does not list, in a cloud that tells nothing, surely left nothing.

        SkyPilot ends what a launch made that failed or was cancelled, or lists it. One that succeeded it has
        forgotten: the machine may live, and is billed, until it would have been armed and have ended itself.

        Raises:
            SkyUnreachableError: SkyPilot does not answer.
        """
        entry, context = machine.entry, machine.context
        if not entry.asked:
            return True
        limit_s = context.settings.launch_limit_s + machine.survival_s
        if context.clock.wall() >= context.clock.pace.wall_time(entry.asked_at) + limit_s:
            log.error("nobody-says-whether-it-ended", instance=machine.id, error=f"for {limit_s:g} s")
            entry.launched_at = entry.launched_at or entry.asked_at
            return True
        try:
            if entry.request is not None:
                await context.sky.wait(entry.request)
        except SkyUnreachableError:
            raise
        except SkyError as error:
            return not isinstance(error, SkyNotFoundError)
        return False

    async def terminate(self, machine: RentedMachine, seen: Observation | None) -> None:
        """End a machine that SkyPilot does not know: by its instance's id, else by its own agent.

        Returns when that was requested. Raises SkyError if the machine does not answer either.
        """
        at = machine.entry.at if seen is None else seen.at
        log.warning("ended-without-skypilot", instance=machine.id, at=None if at is None else at.instance)
        try:
            if at is not None:
                await self._clouds.end(at)
                return
        except SkyError as error:
            log.warning("cloud-ends-it-not", instance=machine.id, error=str(error))
        if machine.entry.access is not None:
            await machine.retire()

    def _may_live(self, machine: RentedMachine) -> bool:
        """Whether nothing but its cloud can tell that a machine that was asked for is over."""
        return machine.entry.asked and not (machine.entry.taken_down or self._switch_must_have_fired(machine))

    def _switch_must_have_fired(self, machine: RentedMachine) -> bool:
        """Whether a machine has been silent for so long that its armed switch must have ended it."""
        heard_at = self._begun_at if machine.heard_at is None else machine.heard_at
        silent_s = self._context.clock.wall() - heard_at
        return machine.entry.armed and silent_s >= machine.survival_s
