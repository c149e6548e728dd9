"""Reads Kubernetes manifests of users as submissions: all manifests of a text, or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

from starburst.domain.array import array_id
from starburst.domain.cloud import OfferRules
from starburst.domain.gpu_types import takes
from starburst.domain.job import CloudChoice, Job, Submission
from starburst.domain.resources import Resources
from translator.errors import ManifestError
from translator.field import ONLY_THE_CLUSTER, Field, Fields, ManifestReport
from translator.manifests.arrays import MAX_MEMBERS, IndexRange, judge_indexes
from translator.manifests.gpus import refuse_shares
from translator.manifests.hints import (
    DEFAULT_RETRIES,
    MAX_RETRIES,
    PREFIX,
    JobHints,
    note_unkept,
    read_hints,
    refuse_hints,
)
from translator.manifests.places import requirements
from translator.manifests.pod import Pod, check_restart_policy, read_pod
from translator.object_names import DNS_SUBDOMAIN
from translator.success_policy import deciding_ranks
from translator.tasks.cluster_names import judge_names
from translator.tasks.injected import judge_annotations

#: Largest number of tasks in a gang; a larger one is taken for a typing error.
MAX_TASKS = 1000
#: Largest number of tasks of all jobs of an array.
MAX_ARRAY_TASKS = 100_000
MAX_ID = 63
#: Letters of a DNS subdomain.
MAX_SUBDOMAIN = 253
#: An object may have 1.5 MiB in etcd's default settings.
MAX_JSON = 1_500_000
#: Largest size of an object's labels and annotations, bytes (Kubernetes' TotalAnnotationSizeLimitB).
MAX_LABELS = 256 * 1024

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


_TOP = Fields("a manifest", read=("apiVersion", "kind", "metadata", "spec"), harmless=("status",))
#: Metadata that API servers write.
SERVERS_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
_METADATA = Fields(
    "metadata",
    read=("name", "generateName", "labels", "annotations", "namespace"),
    harmless=SERVERS_METADATA,
)
_TEMPLATE = Fields("a pod template", read=("metadata", "spec"))
_AS_A_WHOLE = "a job is run again as a whole, or not at all"
_JOB_SPEC = Fields(
    "a Job spec",
    read=(
        "activeDeadlineSeconds",
        "backoffLimit",
        "completionMode",
        "completions",
        "managedBy",
        "parallelism",
        "successPolicy",
        "suspend",
        "template",
    ),
    harmless=("manualSelector", "podReplacementPolicy", "selector", "ttlSecondsAfterFinished"),
    noted={
        "backoffLimitPerIndex": _AS_A_WHOLE,
        "maxFailedIndexes": _AS_A_WHOLE,
        "podFailurePolicy": _AS_A_WHOLE,
        "scheduling": "Starburst starts the tasks of a job together by itself",
    },
    kept=("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "scheduling"),
)
#: Values of `managedBy`: equal to its absence, and of a Job whose status Starburst writes.
_KUBERNETES_ITSELF = "kubernetes.io/job-controller"
MANAGED_BY_US = "starburst.io/starburst"


def submission(manifest: Field, suffix: Callable[[], str], user: str) -> Submission:
    """A manifest as a job and its workload, or as an array; errors go to its report.

    A job that cannot leave, or for which there are no offers, is read again as one that stays.
    """
    report = manifest.report
    end = suffix()
    found = _submission(manifest, lambda: end, user)
    if report.errors or not report.leaves or not (report.stays or report.offers is False):
        return found
    if report.stays and (found.job.cloud is CloudChoice.ONLY or (report.offers and not report.may_stay)):
        for reason in report.stays:
            told = f"{reason.why}; {reason.mend}"
            report.errors.append(ManifestError(report.source, report.document, reason.field, None, told))
        return found
    report.notes.clear()
    stays = _why_it_stays(report)
    found = _submission(manifest, lambda: end, user, may_leave=False)
    if not stays:
        return found
    return replace(found, job=replace(found.job, cloud=CloudChoice.NEVER, stays=stays))


def _why_it_stays(report: ManifestReport) -> str:
    """Why a job cannot leave, "" if it can; with a note to its user where there is a cloud."""
    if not report.stays:
        return ""
    why = f"stays on the cluster: {', '.join(dict.fromkeys(reason.part for reason in report.stays))}"
    if report.offers:
        mends = dict.fromkeys(reason.mend for reason in report.stays if reason.mend != ONLY_THE_CLUSTER)
        report.notes.append("; ".join([why, *mends]))
    return why


def _submission(
    manifest: Field, suffix: Callable[[], str], user: str, *, may_leave: bool = True
) -> Submission:
    manifest.check(_TOP)
    metadata = manifest.at("metadata")
    metadata.check(_METADATA)
    _check_labels(metadata)
    refuse_shares(metadata)
    name, job_id = _name_and_id(metadata, suffix)
    hints = read_hints(metadata)
    manifest.report.namespace = metadata.at("namespace").text() or ""
    manifest.report.leaves = may_leave and hints.cloud is not CloudChoice.NEVER
    manifest.report.on_host = hints.machine.runtime == "host"
    if manifest.report.leaves:
        note_unkept(metadata)
        judge_annotations(manifest)
    pod, tasks, span = (_job if manifest.at("kind").value == "Job" else _pod)(manifest.at("spec"))
    resources = _typed(pod.resources, hints.machine.gpu_type, metadata)
    if hints.array is not None:
        _check_array(manifest.at("spec"), hints.array, tasks)
    span = span or hints.array
    if span is not None:
        job_id = array_id(job_id)
        judge_indexes(manifest.at("spec"), tasks, noted=hints.array is None)
    job = Job(
        id=job_id,
        name=name,
        tasks=(resources,) * tasks,
        user=user,
        queue=hints.queue,
        node_selector=pod.node_selector,
        rules=pod.rules,
        runtime_estimate_s=hints.runtime_estimate_s,
        time_limit_s=pod.workload.time_limit_s,
        max_wait_s=hints.max_wait_s,
        cloud=hints.cloud,
        checkpoint=hints.checkpoint,
        priority=hints.priority,
        hold=hints.hold or manifest.at("spec").at("suspend").value is True,
        array=None if span is None else span.first_member(job_id),
        after_ok=hints.after_ok,
        after_any=hints.after_any,
        after_not_ok=hints.after_not_ok,
        after_start=hints.after_start,
        retries=_retries(manifest, hints.retries, tasks),
        grace_s=pod.grace_s,
        offer_rules=_offer_rules(hints, pod, resources),
        workload=hints.workload,
        alone_per_s=hints.alone_per_s,
        spread=hints.spread,
        least_tasks=_least_tasks(metadata, hints.elastic, tasks, pod.workload.deciding),
        image="" if manifest.report.on_host else pod.workload.image or "",
    )
    workload = replace(pod.workload, on_host=manifest.report.on_host)
    text = as_json(manifest)
    if manifest.report.native:
        workload = replace(workload, manifest=text)
    return Submission(job, workload, tuple(manifest.report.notes), singleton=hints.singleton)


def _typed(resources: Resources, kind: str, metadata: Field) -> Resources:
    """Resources with the types of GPUs that an annotation names; a node selector chooses among them."""
    if not kind or not resources.gpus:
        return resources
    selected = resources.gpu_type
    if selected and not takes(kind, selected):
        metadata.refuse(f"starburst.io/gpu-type is {kind}, but a node selector asks for {selected}")
    return replace(resources, gpu_type=selected or kind)


def _check_array(spec: Field, span: IndexRange, tasks: int) -> None:
    """Refuse an array whose jobs would not run all their tasks at once, or that has too many in all."""
    completions, at_once = spec.at("completions"), spec.at("parallelism").value
    at_once = at_once if isinstance(at_once, int) else 1
    if isinstance(completions.value, int) and completions.value > at_once:
        completions.refuse(
            "the tasks of an array's job run at once; make it equal parallelism, or remove the annotation "
            "starburst.io/array"
        )
    elif (span.last - span.first + 1) * tasks > MAX_ARRAY_TASKS:
        spec.at("parallelism").refuse(
            f"an array has at most {MAX_ARRAY_TASKS} tasks in all its jobs; submit several"
        )


def _least_tasks(metadata: Field, wish: int, tasks: int, deciding: tuple[int, ...]) -> int:
    """With how many of its tasks a job goes on after a lost node, never without one that decides; 0: all."""
    if wish >= tasks:
        elastic = metadata.at("annotations").at(f"{PREFIX}elastic")
        elastic.note(f"it runs with {tasks} task{'s' if tasks > 1 else ''} or not at all")
        return 0
    least = max(wish, max(deciding, default=0) + 1)
    return least if wish and least < tasks else 0


def _offer_rules(hints: JobHints, pod: Pod, resources: Resources) -> OfferRules:
    """The annotations about machines, and what the pod requires of its place."""
    rules = hints.machine.offer_rules
    if hints.cloud is CloudChoice.NEVER:
        return rules
    any_capacity = hints.machine.use_spot is not None
    needed = requirements(pod.place, resources, amd=pod.wants_amd, any_capacity=any_capacity)
    return replace(rules, requires=needed) if needed else rules


def as_json(manifest: Field) -> str | None:
    """A manifest, or a part of one, as compact JSON; None, and refused, if it is too large for Kubernetes, as
    with many YAML aliases.
    """
    text = StringIO()
    try:
        for part in _JSON.iterencode(manifest.value):
            text.write(part)
            if text.tell() > MAX_JSON:
                manifest.refuse(
                    f"has more than the {MAX_JSON} letters that Kubernetes takes; make it smaller"
                )
                return None
    except (ValueError, RecursionError):
        manifest.refuse("has a number that is too large, or an alias that stands for itself; write it out")
        return None
    return text.getvalue()


def _check_labels(metadata: Field) -> None:
    """Refuse labels and annotations that are no text, or whose total size exceeds the limit of Kubernetes."""
    left = MAX_LABELS
    for kind in ("labels", "annotations"):
        found = metadata.at(kind).value
        for key, value in found.items() if isinstance(found, dict) else ():
            if not key.startswith(PREFIX):  # those are read, and judged, as hints
                metadata.at(kind).at(key).text()
            left -= len(key.encode()) + len(value.encode() if isinstance(value, str) else b"")
            if left < 0:
                metadata.at(kind).at(key).refuse(
                    f"brings labels and annotations to more than the {MAX_LABELS} bytes that Kubernetes "
                    "takes; make them smaller",
                    show=False,
                )
                return


def _name_and_id(metadata: Field, suffix: Callable[[], str]) -> tuple[str, str]:
    """A job's name, and a unique id derived from it, which is a DNS label."""
    namespace = metadata.at("namespace").text()
    if namespace not in (None, "", "default") and not metadata.report.native:
        metadata.at("namespace").note("Starburst has no namespaces; sort jobs with starburst.io/queue")
    generated = metadata.at("name").value is None
    field = metadata.at("generateName" if generated else "name")
    if field.value is None:
        metadata.at("name").refuse("is missing; give the job a name, or a generateName")
        return "", ""
    text = field.text()
    if text is None:
        return "", ""
    name = text.rstrip("-") if generated else text
    if len(name) > MAX_SUBDOMAIN and DNS_SUBDOMAIN.fullmatch(name[:MAX_SUBDOMAIN].rstrip("-.")):
        field.refuse(f"has {len(name)} letters; write at most {MAX_SUBDOMAIN}", show=False)
        return "", ""
    if not DNS_SUBDOMAIN.fullmatch(name):
        field.refuse(
            "must be lower-case letters, digits, dashes and dots, with a letter or digit at each end"
        )
        return "", ""
    return name, _id(text if generated else f"{text}-", suffix())


def _id(prefix: str, end: str) -> str:
    room = MAX_ID - len(end)
    if len(prefix) > room:
        prefix = f"{prefix[: room - 1].rstrip('-.')}-"
    return prefix.replace(".", "-") + end


def _pod(spec: Field) -> tuple[Pod, int, IndexRange | None]:
    check_restart_policy(spec, of_job=False)
    judge_names(spec, tasks=1)
    return read_pod(spec), 1, None


def _job(spec: Field) -> tuple[Pod, int, IndexRange | None]:
    """The pod of a Job, the size of the gang, and the index range if the Job is an array."""
    spec.check(_JOB_SPEC)
    tasks, span = _counts(spec)
    if spec.at("suspend").flag():
        spec.at("suspend").note("is held; let it go with starburst release")
    if spec.at("managedBy").text() not in (None, _KUBERNETES_ITSELF, MANAGED_BY_US):
        spec.at("managedBy").refuse("another controller is to run this job; remove it")
    spec.at("completionMode").choice(("Indexed", "NonIndexed"))
    limit_s = spec.at("activeDeadlineSeconds").whole(1)
    template = spec.at("template")
    template.check(_TEMPLATE)
    template.at("metadata").check(_METADATA)
    refuse_hints(template.at("metadata"))
    refuse_shares(template.at("metadata"))
    _check_labels(template.at("metadata"))
    check_restart_policy(template.at("spec"), of_job=True)
    pod = read_pod(template.at("spec"))
    judge_names(template.at("spec"), tasks)
    limits_s = [limit for limit in (limit_s, pod.workload.time_limit_s) if limit is not None]
    time_limit_s, deciding = min(limits_s, default=None), deciding_ranks(spec, tasks)
    return (
        replace(pod, workload=replace(pod.workload, time_limit_s=time_limit_s, deciding=deciding)),
        tasks,
        span,
    )


def _retries(manifest: Field, wish: int | None, tasks: int) -> int:
    """The number of further attempts by Starburst: the annotation's, else the backoffLimit.

    A Kubernetes cluster applies the backoffLimit itself, within one run, where that is the same: it replaces
    pods one by one, and a gang of which one task fails is run again as a whole. Absent is 0: Kubernetes' six
    would rent all machines of a gang six more times.
    """
    spec = manifest.at("spec")
    limit = spec.at("backoffLimit")
    allowed = limit.whole(0)
    if wish is not None:
        return wish
    if limit.report.native and (tasks == 1 or (spec.at("completions").whole(1) or tasks) > tasks):
        if allowed and not (limit.report.accepted and allowed == DEFAULT_RETRIES):
            unless = "" if limit.report.accepted else "without starburst.io/retries "
            limit.note_away(f"{unless}a failed command is not run again")
        return 0
    return min(allowed or 0, MAX_RETRIES)


def _counts(spec: Field) -> tuple[int, IndexRange | None]:
    """The number of tasks at a time and None; or 1 and the index range of an array, if an Indexed Job has
    more completions than parallelism.

    On a Kubernetes cluster the Job controller makes a pod after another until the completions are reached.
    """
    parallelism, completions = spec.at("parallelism"), spec.at("completions")
    tasks = parallelism.whole(1, MAX_TASKS) if parallelism.value is not None else 1
    wanted = completions.whole(1)
    if tasks is None or wanted is None:
        return tasks or 1, None
    if wanted <= tasks:  # no more pods than completions are made
        return wanted, None
    if spec.at("completionMode").value == "Indexed":
        if wanted > MAX_MEMBERS:
            completions.refuse(f"an array has at most {MAX_MEMBERS} jobs; submit several")
        return 1, IndexRange(0, wanted - 1, tasks)
    completions.refuse_away(
        f"must equal parallelism, which is {tasks}: set parallelism to {wanted} to run all at once, or "
        f"completionMode to Indexed for an array of {wanted} jobs",
        f"differs from parallelism, which is {tasks}: a cloud runs all tasks at once",
        part=f"{wanted} completions by {tasks} at a time",
    )
    return tasks, None
