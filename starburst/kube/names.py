"""The labels and annotations `starburst.io/…` that Starburst and Chakra write and read."""

from __future__ import annotations

#: Label of a Job or Pod that is to be taken into this queue (adoption).
QUEUE = "starburst.io/queue"
#: Label: id of the job an object stands for.
JOB = "starburst.io/job"
#: Label: id of the scheduler (its store) that an object belongs to.
CONTROLLER = "starburst.io/controller"
#: Annotation "true": a user made this object, and Starburst has taken it into a queue.
ADOPTED = "starburst.io/adopted"
#: Number of the run that an object, or its pods, are for.
ATTEMPT = "starburst.io/attempt"
#: Names of nodes in the order of ranks, with commas; "" while there are none. Chakra binds to these only.
NODES = "starburst.io/nodes"
#: The reason of the last decision, one sentence.
DECISION = "starburst.io/decision"
#: Rank of a pod in its gang, written when it is bound.
RANK = "starburst.io/rank"
#: Address of the first pod of a gang. A pod that has it empty is bound once that is known, and then has it.
MASTER_ADDR = "starburst.io/master-addr"
#: Addresses of all pods of a gang by rank, one a line; "" until all are known.
HOSTS = "starburst.io/hosts"
#: Gang of pods that start together or not at all, for Chakra alone: "name/size".
GANG = "starburst.io/gang"
#: How a run ended, and the command that shows what it wrote.
EXIT_CODE = "starburst.io/exit-code"
LOGS = "starburst.io/logs"
#: "attempt end why" of a run that Starburst is ending; `end` is a value of `RunEnd`.
STOPPING = "starburst.io/stopping"
#: activeDeadlineSeconds of an adopted Job, kept here while it waits.
ACTIVE_DEADLINE = "starburst.io/active-deadline"

#: ttlSecondsAfterFinished of a Job, kept here until its end is stored.
TTL = "starburst.io/ttl"

#: What keeps an adopted object from running, "suspended" or "gated": its job was held for it.
KEPT = "starburst.io/kept"

#: uid of the object that the marks were written on; on any other object they are copies.
UID = "starburst.io/uid"

#: Labels and annotations that Starburst or Chakra wrote on an object, and that mean nothing on a copy of it.
MARKS = frozenset(
    {JOB, CONTROLLER, ADOPTED, ATTEMPT, NODES, DECISION, RANK, EXIT_CODE, LOGS, STOPPING, KEPT, UID}
)

#: `schedulerName` of pods that Chakra binds.
CHAKRA = "chakra"
