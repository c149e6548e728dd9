"""Taints, tolerations and node affinity mean what they mean to Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.constraints import NODE_NAME, Requirement, Rules, Taint, Term, Toleration

GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")
LOST = Taint("node.kubernetes.io/unreachable", "", "NoExecute")
WISH = Taint("maintenance", "soon", "PreferNoSchedule")
LABELS = {"zone": "b", "disk": "ssd", "cores": "64", "empty": ""}


def term(*requirements: tuple[str, str, tuple[str, ...]]) -> Term:
    return tuple(Requirement(*each) for each in requirements)


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration("nvidia.com/gpu", "Exists"), GPU, True),
        (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"), GPU, True),
        (Toleration("nvidia.com/gpu", "Exists", "", "NoExecute"), GPU, False),
        (Toleration("nvidia.com/gpu", "Equal", "present"), GPU, True),
        (Toleration("nvidia.com/gpu", "Equal", "absent"), GPU, False),
        (Toleration("nvidia.com/gpu"), GPU, False),
        (Toleration("amd.com/gpu", "Exists"), GPU, False),
        (Toleration("", "Exists"), GPU, True),
        (Toleration("", "Exists"), LOST, True),
        (Toleration("", "Exists", "", "NoExecute"), GPU, False),
        (Toleration("node.kubernetes.io/unreachable"), LOST, True),
        (Toleration("nvidia.com/gpu", "Sometimes", "present"), GPU, False),
    ],
)
def test_a_toleration_answers_the_taints_it_names(
    toleration: Toleration, taint: Taint, tolerated: bool
) -> None:
    assert toleration.tolerates(taint) is tolerated


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("a",), False),
        ("rack", "In", ("a",), False),
        ("zone", "NotIn", ("a",), True),
        ("zone", "NotIn", ("a", "b"), False),
        ("rack", "NotIn", ("a",), True),
        ("empty", "Exists", (), True),
        ("rack", "Exists", (), False),
        ("zone", "DoesNotExist", (), False),
        ("rack", "DoesNotExist", (), True),
        ("cores", "Gt", ("63",), True),
        ("cores", "Gt", ("64",), False),
        ("cores", "Lt", ("65",), True),
        ("cores", "Lt", ("64",), False),
        ("cores", "Gt", ("+63",), True),
        ("cores", "Gt", ("-1",), True),
        ("cores", "Gt", ("7",), True),  # as numbers, not as texts
        ("cores", "Gt", ("6.5",), False),
        ("cores", "Gt", ("6_0",), False),
        ("cores", "Lt", (str(2**63 - 1),), True),
        ("cores", "Lt", (str(2**63),), False),
        ("cores", "Gt", ("1", "2"), False),
        ("zone", "Gt", ("1",), False),
        ("empty", "Lt", ("1",), False),
        ("rack", "Gt", ("1",), False),
        ("rack", "Lt", ("1",), False),
        ("zone", "Near", ("b",), False),
    ],
)
def test_a_requirement_is_a_question_to_one_label(
    key: str, operator: str, values: tuple[str, ...], holds: bool
) -> None:
    assert Requirement(key, operator, values).holds(LABELS) is holds


@pytest.mark.parametrize(
    ("rules", "admitted"),
    [
        (Rules(), True),
        (Rules((term(("zone", "In", ("b",)), ("disk", "In", ("ssd",))),)), True),
        (Rules((term(("zone", "In", ("b",)), ("disk", "In", ("hdd",))),)), False),
        (Rules((term(("zone", "In", ("a",))), term(("disk", "Exists", ())))), True),
        (Rules(((),)), False),
        (Rules(((), term(("zone", "Exists", ())))), True),
        (Rules((term((NODE_NAME, "In", ("n0",))),)), True),
        (Rules((term((NODE_NAME, "NotIn", ("n0",))),)), False),
        (Rules((term((NODE_NAME, "In", ("n1",)), ("zone", "In", ("b",))),)), False),
    ],
)
def test_terms_are_alternatives_and_what_stands_in_one_must_all_hold(rules: Rules, admitted: bool) -> None:
    assert rules.admits("n0", LABELS, ()) is admitted


@pytest.mark.parametrize(
    ("tolerations", "taints", "admitted"),
    [
        ((), (WISH,), True),
        ((), (GPU,), False),
        ((), (LOST,), False),
        ((Toleration("nvidia.com/gpu", "Exists"),), (GPU,), True),
        ((Toleration("nvidia.com/gpu", "Exists"),), (GPU, LOST), False),
        (
            (Toleration("nvidia.com/gpu", "Exists"), Toleration("", "Exists", "", "NoExecute")),
            (GPU, LOST),
            True,
        ),
        ((Toleration("", "Exists"),), (GPU, LOST, WISH), True),
    ],
)
def test_every_taint_that_repels_needs_a_toleration(
    tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], admitted: bool
) -> None:
    assert Rules(tolerations=tolerations).admits("n0", LABELS, taints) is admitted


def test_a_label_named_like_the_reserved_key_does_not_stand_for_the_name() -> None:
    assert not Rules((term((NODE_NAME, "In", ("n1",))),)).admits("n0", {NODE_NAME: "n1"}, ())


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As in Kubernetes' api/core/v1, Toleration.ToleratesTaint."""
    if len(toleration.effect) > 0 and toleration.effect != taint.effect:
        return False
    if len(toleration.key) > 0 and toleration.key != taint.key:
        return False
    return {"Equal": toleration.value == taint.value, "Exists": True}[toleration.operator]


def matches(requirement: Requirement, labels: dict[str, str]) -> bool:
    """As in Kubernetes' apimachinery, labels.Requirement.Matches."""
    has, values = requirement.key in labels, set(requirement.values)
    match requirement.operator:
        case "In":
            return has and labels[requirement.key] in values
        case "NotIn":
            return not has or labels[requirement.key] not in values
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case "Gt" if has:
            return int(labels[requirement.key]) > int(requirement.values[0])
        case "Lt" if has:
            return int(labels[requirement.key]) < int(requirement.values[0])
    return False


keys, numbers = st.sampled_from("abc"), st.integers(-20, 20).map(str)
effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.builds(Taint, keys, numbers, effects)
tolerations = st.builds(
    Toleration, st.just("") | keys, st.sampled_from(["Equal", "Exists"]), numbers, st.just("") | effects
)
one = st.tuples(numbers)
requirements = st.one_of(
    st.builds(Requirement, keys, st.sampled_from(["In", "NotIn"]), st.lists(numbers, min_size=1).map(tuple)),
    st.builds(Requirement, keys, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(Requirement, keys, st.sampled_from(["Gt", "Lt"]), one),
)
labels = st.dictionaries(keys, numbers)
terms = st.lists(requirements, max_size=3).map(tuple)


@given(tolerations, taints)
def test_any_toleration_answers_any_taint_as_kubernetes_says(toleration: Toleration, taint: Taint) -> None:
    assert toleration.tolerates(taint) == tolerates(toleration, taint)


@given(requirements, labels)
def test_any_requirement_is_judged_as_kubernetes_does(
    requirement: Requirement, found: dict[str, str]
) -> None:
    assert requirement.holds(found) == matches(requirement, found)


@given(
    st.lists(terms, max_size=3).map(tuple),
    st.lists(tolerations, max_size=3).map(tuple),
    labels,
    st.lists(taints, max_size=3),
)
def test_a_node_is_admitted_by_some_term_and_in_spite_of_each_taint(
    affinity: tuple[Term, ...], answers: tuple[Toleration, ...], found: dict[str, str], against: list[Taint]
) -> None:
    left = [
        t for t in against if t.effect != "PreferNoSchedule" and not any(tolerates(a, t) for a in answers)
    ]
    wanted = not affinity or any(len(each) > 0 and all(matches(r, found) for r in each) for each in affinity)
    assert Rules(affinity, answers).admits("n0", found, against) == (wanted and not left)
