"""The success policy of an Indexed Job: the tasks whose success is that of the whole job."""

from __future__ import annotations

import re

from translator.field import Field, Fields

_POLICY = Fields("a success policy", read=("rules",))
_RULE = Fields("a rule of a success policy", read=("succeededCount", "succeededIndexes"))
_INDEXES = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")


def deciding_ranks(spec: Field, tasks: int) -> tuple[int, ...]:
    """The ranks that decide, of a Job with so many tasks; () is all of them.

    One rule with indexes, all of which have to succeed, is read; a cluster keeps the others.
    """
    policy = spec.at("successPolicy")
    policy.check(_POLICY)
    if not policy.value:
        return ()
    rules = policy.at("rules").items()
    for rule in rules:
        rule.check(_RULE)
    alone = len(rules) == 1 and rules[0].at("succeededCount").value is None
    if not alone or spec.at("completionMode").value != "Indexed":
        policy.refuse_away("of success policies one rule with succeededIndexes is read, of an Indexed Job")
        return ()
    indexes = rules[0].at("succeededIndexes")
    text = indexes.text() or ""
    if not _INDEXES.fullmatch(text):
        indexes.refuse("must be indexes such as 0 or 0,2-3")
        return ()
    ranks: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= tasks:
            indexes.refuse(f"must be below the number of tasks, {tasks}")
            return ()
        ranks |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(ranks)) if len(ranks) < tasks else ()
