"""Options of sbatch that a job does not keep: harmless ones, those that are noted, those that are refused."""

from __future__ import annotations

#: Read by `script.py`.
READ = frozenset(
    (
        *("array", "chdir", "constraint", "container-image", "cpus-per-gpu", "cpus-per-task", "dependency"),
        *("export", "gpus", "gpus-per-node", "gpus-per-task", "gres", "hold", "job-name", "mem"),
        *("mem-per-cpu", "mem-per-gpu", "nodes", "ntasks", "ntasks-per-gpu", "ntasks-per-node"),
        "time",
    )
)
#: Without an effect on what the job does.
HARMLESS = frozenset(
    (
        *(
            "comment",
            "get-user-env",
            "wait-all-nodes",
            "kill-on-invalid-dep",
            "no-kill",
            "parsable",
            "quiet",
            "verbose",
        ),
        *("open-mode", "oversubscribe", "profile", "acctg-freq", "wckey", "no-requeue", "tmp"),
    )
)
_PLACE = "Starburst chooses the node; in a manifest a node selector names one"
_LOG = "what it writes is shown by starburst logs; no file is made"
_WHO = "is of Slurm's accounting; jobs are sorted by queues: submit --queue"
_BINDING = "processes are not bound; a task has its CPUs and GPUs to itself"
#: Left out, each with what happens instead.
NOTED = {
    "account": _WHO,
    "partition": "partitions are not used; name a queue with submit --queue",
    "qos": _WHO,
    "output": _LOG,
    "error": _LOG,
    "exclude": _PLACE,
    "nodelist": _PLACE,
    "prefer": _PLACE,
    "exclusive": "a task has its CPUs, memory and GPUs to itself, not its node",
    "licenses": "licenses are not counted",
    "reservation": "reservations are not used",
    "clusters": "Starburst chooses the site",
    "mail-type": "no mail is sent; submit --wait, or starburst events -f",
    "mail-user": "no mail is sent; submit --wait, or starburst events -f",
    "requeue": "a preempted or lost run is run again anyway; a failed one by submit --retries",
    "signal": "a run that is told to stop gets SIGTERM; submit --checkpoint if it saves its state then",
    "nice": "write a starburst.io/priority, in a manifest",
    "priority": "write a starburst.io/priority, in a manifest",
    "time-min": "the time limit is --time",
    "deadline": "how long it may wait is submit --max-wait",
    "switches": "the network's switches are not known",
    "ntasks-per-socket": _BINDING,
    "ntasks-per-core": _BINDING,
    "sockets-per-node": _BINDING,
    "cores-per-socket": _BINDING,
    "threads-per-core": _BINDING,
    "extra-node-info": _BINDING,
    "hint": _BINDING,
    "distribution": _BINDING,
    "cpu-bind": _BINDING,
    "mem-bind": _BINDING,
    "gpu-bind": _BINDING,
    "gres-flags": _BINDING,
    "core-spec": _BINDING,
    "overcommit": _BINDING,
    "cpu-freq": "the frequency of processors is not set",
    "gpu-freq": "the frequency of processors is not set",
    "mincpus": "write --cpus-per-task for the CPUs that it needs",
    "propagate": "limits are those of the node",
    "wait": "submit --wait waits for the end",
    "container-mounts": "mounts of containers are not made; write the volumes in a manifest",
    "container-workdir": "the directory is that of --chdir",
}
#: What would run wrongly without them.
REFUSED = {
    "begin": "start times are not kept; submit --hold, and starburst release when it may start",
    "bb": "burst buffers are not there; remove it",
    "bbf": "burst buffers are not there; remove it",
    "cluster-constraint": "clusters of Slurm are not known; remove it",
    "container": "bundles of OCI are not run; name an image with submit --image",
    "gpus-per-socket": "sockets are not known; write --gpus",
    "input": "standard input is empty; read the file in the script",
    "nodefile": "Starburst chooses the nodes; remove it",
    "test-only": "is starburst submit --dry-run; remove it",
    "uid": "Starburst runs jobs as its config says; remove it",
    "gid": "Starburst runs jobs as its config says; remove it",
    "wrap": "is for the command line; write the command into the script",
}
