"""`starburst config`: check, schema and init."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.config import Config, load_config
from starburst.app.errors import UserError
from starburst.policy.waiting import WAITING

app = typer.Typer(
    help="Check, describe or begin a config file.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

STARTER = """\
# starburst.yaml: every field has a default; `starburst config schema` lists them all.
policy:
  budget_percent: 25      # P: jobs may take this much longer on average
  waiting: compute        # no-wait, constant, runtime, resource, compute, star, infinite
  returns: if-it-pays     # never, t-max, if-it-pays
  t_max: 15m              # a cloud run this old is looked at for coming home
cluster:
  kind: local             # the embedded cluster: jobs are processes of this machine
  nodes:
    - {name: node, count: 2, gpus: 4, gpu_type: V100, cpus: 32, memory_gib: 244}
# cluster:
#   kind: kubernetes      # your own cluster, by KUBECONFIG; try: starburst doctor. Remove the cloud below
#                         # then: without `cloud` there is none; cloud.kind: skypilot rents real machines
#   namespace: default    # of submitted jobs whose manifest names none
#   checkpoints: {persistentVolumeClaim: {claimName: checkpoints}}
cloud:
  kind: local             # the embedded cloud: machines are make-believe, prices are EC2's
  offers:
    - {name: p3.2xlarge, gpus: 1, gpu_type: V100, cpus: 8, memory_gib: 61, usd_per_hour: 3.06}
    - {name: p3.8xlarge, gpus: 4, gpu_type: V100, cpus: 32, memory_gib: 244, usd_per_hour: 12.24}
    - {name: c7i.2xlarge, cpus: 8, memory_gib: 16, usd_per_hour: 0.357}
"""


@app.command()
def check(file: Annotated[Path, typer.Argument(help="A starburst.yaml.")]) -> None:
    """Say whether a config is good; if not, every problem in a line, and exit code 2."""
    config = load_config(file)
    parts = parts_of(config)
    if config.cluster.kind != "local":
        parts["cluster"] += " (starburst doctor looks at it)"
    print(f"{file}: ok: {', '.join(parts.values())}{_idle_budget(config)}")


def parts_of(config: Config) -> dict[str, str]:
    """The cluster, the cloud and the waiting policy, in a few words each."""
    local = config.cluster.kind == "local"
    cloud = {"none": "no cloud", "skypilot": "offers of SkyPilot's"}
    return {
        "cluster": _count(len(config.cluster.known_nodes()), "node") if local else "a Kubernetes cluster",
        "cloud": cloud.get(config.cloud.kind) or _count(len(config.cloud.known_offers()), "offer"),
        "policy": WAITING[config.policy.waiting].title,
    }


def _idle_budget(config: Config) -> str:
    """A note on a `budget_percent` that changes nothing."""
    if not config.has_idle_budget:
        return ""
    factor = f"by policy.factor {config.policy.factor:g}"
    return f", {factor}; policy.budget_percent has no effect, remove one of them"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


@app.command()
def schema() -> None:
    """Print the JSON Schema of the config, for editors."""
    print(json.dumps(Config.model_json_schema(mode="serialization"), indent=2))


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("starburst.yaml"),
) -> None:
    """Write a config to start from."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(STARTER)
    except FileExistsError:
        raise UserError(f"{file}: exists already; name another file") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror}); name another file") from None
    print(f"{file}: written; start with: starburst up --config {file}")
