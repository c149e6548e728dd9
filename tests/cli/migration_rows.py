"""What each row of docs/migration.md is run as: by what is typed elsewhere, commands and what they print.

One session of `starburst up` runs them in this order, in a directory with `job.sh`, `task.yaml`, `job.yaml`
and `rayjob.yaml`. Its node has 2 GPUs, which `train` has; `later` and `sweep` wait for them, `done` is over.
"""

from __future__ import annotations

#: Commands, each with a regular expression that is found in what it prints.
Runs = tuple[tuple[str, str], ...]

STATUS = ("status", r"train-\w+ +running +2 +node")
LOGS = ("logs done -f --tail 20", r"^hello$")
ENTER: Runs = (("exec train -- echo inside", r"^inside$"), ("shell train", r"in the shell"))

ROWS: dict[str, Runs] = {
    "sbatch job.sh": (
        ("submit job.sh", r"job/script-\w+ submitted"),
        ("submit --gpus 2 -- true", "submitted"),
    ),
    "sbatch --array=0-99%10": (
        (
            "submit --gpus 2 --name sweep --array 0-2%1 -- true",
            r"sweep-\w+\[0-2\] submitted: an array of 3 jobs",
        ),
    ),
    "sbatch --dependency=afterok:ID": (
        ("submit --after train --name next -- true", r"job/next-\w+ submitted"),
    ),
    "sbatch --hold": (
        ("submit --hold --name held -- true", r"job/held-\w+ submitted"),
        ("submit --dry-run -- true", r"would start at once on the cluster on cpu"),
    ),
    "sbatch --wait": (("submit --wait --name waited -- true", r"job/waited-\w+ succeeded"),),
    "squeue": (STATUS, ("status --user {user}", r"later-\w+ +queued"), ("status --queue default", r"train")),
    "squeue --start": (("explain later", r"later-\w+ waits for 2 GPUs.* on the cluster"),),
    "scontrol show job ID": (("status later", r"needs 2 GPUs"),),
    "scontrol hold": (
        ("hold later", r"job/later-\w+ is being held"),
        ("status later", r"\bheld\b"),
        ("release later", r"job/later-\w+ is being released"),
    ),
    "scontrol update job ID priority=…": (
        ("edit later --priority 5 --max-wait 2h --estimate 30m", r"job/later-\w+ is being changed"),
    ),
    "srun --jobid=ID --pty bash": ENTER,
    "sinfo": (("nodes", r"node +ready +2/2"),),
    "scontrol show partition": (("queues -o wide", r"default +\d"),),
    "sacct": (
        ("status --since 7d --limit 0", r"done-\w+ +succeeded"),
        ("events done", r"finished after"),
    ),
    "sreport": (("cost --by user", r"^the cloud has cost nothing$"),),
    "smap": (("top --once", r"2 of 2 GPUs in use"),),
    "tail -f slurm-ID.out": (LOGS,),
    "sky launch": (("submit task.yaml", r"job/fine-tune-vit-\w+ submitted"),),
    "sky launch --dryrun": (
        ("submit --dry-run job.yaml", r"fine-tune-bert waits for 1 GPU"),
        ("translate job.yaml", r"accelerators"),
    ),
    "sky queue": (STATUS,),
    "sky logs": (LOGS,),
    "sky exec CLUSTER CMD": ENTER,
    "sky status": (("instances", r"^no rented machines$"),),
    "sky down": (("reap", r"^no rented machines$"),),
    "sky cost-report": (
        ("cost", r"^the cloud has cost nothing$"),
        ("cost --by job", r"^the cloud has cost nothing$"),
        ("instances --all", r"^no rented machines$"),
    ),
    "sky check": (("doctor", r"✓ config: "),),
    "kubectl apply -f job.yaml": (("submit job.yaml", r"job/fine-tune-bert-\w+ submitted"),),
    "kubectl get jobs": (STATUS, ("status -o json", r'"phase": "running"')),
    "kubectl describe job NAME": (("status train", r"runs on node"), ("explain train", r"runs since")),
    "kubectl logs job/NAME -f --tail=20": (("logs job/{done} -f --tail 20", r"^hello$"),),
    "kubectl logs --since=10m --timestamps": (
        ("logs done --since 10m --timestamps", r"^\d{4}-\d\d-\d\dT\S+ hello$"),
    ),
    "kubectl exec -it POD -- sh": ENTER,
    "kubectl get nodes": (("nodes", r"node +ready"), ("top --once", r"cluster: ")),
    "kubectl get events": (("events", r"submitted|runs on node"),),
    "kubectl get clusterqueues": (("queues", r"default +\d"),),
    "ray job submit -- CMD": (
        ("submit --ray --nodes 2 --gpus 1 --name ray -- true", r"job/ray-\w+ submitted"),
    ),
    "kubectl apply -f rayjob.yaml": (("submit rayjob.yaml", r"job/sum-of-squares-\w+ submitted"),),
    "ray job list": (STATUS, ("status train", r"runs on node")),
    "ray job logs ID --follow": (LOGS,),
    "ray status": (("top --once", r"cluster: "),),
    "scontrol requeue": (("requeue train", r"job/train-\w+ is being stopped, and queues again"),),
    "ray job stop ID": (("cancel next", r"job/next-\w+ is being cancelled"),),
    "kubectl delete job NAME": (
        ("cancel held", r"job/held-\w+ is being cancelled"),
        ("cancel --all --queue nobody --yes", r"^no such job is open$"),
    ),
    "scancel ID": (
        ("cancel later", r"job/later-\w+ is being cancelled"),
        ("cancel sweep", r"sweep-\w+.* cancelled"),
        ("cancel --user {user} --queue default --yes", r"is being cancelled"),
    ),
    "sky cancel": (
        ("cancel --all --yes", r"no such job|cancelled"),
        ("submit --name last -- true", "submitted"),
        ("cancel last", "last"),
    ),
}

#: Rows that are answered in words, or need a pod, a machine or a server, with the tests that run them.
ELSEWHERE = {
    "sbatch --mail-type=END,FAIL": "tests/cli/test_notices.py",
    "sky show-gpus": "tests/web/test_client.py",
    "ray.get(f.options(num_gpus=1).remote(x))": "tests/calls/test_run.py",
    "JobSubmissionClient.submit_job(…)": "tests/calls/test_run.py",
    "sky.launch(task)": "tests/calls/test_run.py",
    "submitit": "tests/calls/test_run.py",
}
#: What some rows also need, such as a pod or a real Ray, with the tests that run it there.
REAL = {
    "kubectl apply -f job.yaml": "tests/kube/test_whole.py",
    "kubectl exec -it POD -- sh": "tests/cli/test_pod_logs.py",
    "sky exec CLUSTER CMD": "tests/clouds/sky/test_enter_task.py",
    "ray job submit -- CMD": "tests/translator/kinds/test_ray.py",
}
