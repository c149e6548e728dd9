"""The config and the machines of one run, drawn from its seed."""

from __future__ import annotations

from random import Random
from typing import Any

from starburst.app.config import Config, parse_config


def drawn_config(seed: int) -> Config:
    """Everything that changes what the scheduler does, drawn."""
    draw = Random(f"{seed}/config")
    packer = draw.choice(("none", "none", "eva", "stratus"))
    policy: dict[str, Any] = {
        "waiting": draw.choice(("no-wait", "constant", "compute", "star")),
        "factor": draw.choice((0.1, 0.5, 1.0)),
        "order": draw.choice(("fifo", "fair")),
        "hopeless": draw.choice(("wait", "leave")),
        "packer": packer,
        "pack_window": draw.choice(("0s", "30s", "2m")),
        "pack_period": "0s" if packer == "none" else draw.choice(("0s", "10m")),
        "returns": draw.choice(("never", "t-max", "if-it-pays")),
        "t_max": "10m",
        "max_passes": draw.choice((0, 2, 1000)),
        "offload_cpu_only": draw.choice((True, False)),
        "queue_limit": draw.choice((None, None, 4)),
        "unreachable": draw.choice(("5m", "10m")),
    }
    control = Random(f"{seed}/control")
    if policy["waiting"] != "no-wait" and control.random() < 0.3:
        policy |= {"budget_mode": "calibrated", "budget_percent": control.choice((5, 25))}
    caps: list[dict[str, Any]] = []
    if draw.random() < 0.4:
        caps.append(
            {
                "usd": draw.choice((3, 20, 60)),
                "per": draw.choice(("hour", "day")),
                "then": draw.choice(("stop", "return", "finish")),
            }
        )
    if draw.random() < 0.2:
        caps.append({"usd": 15, "per": "day", "user": "ada", "then": "stop"})
    narrow = Random(f"{seed}/queue-caps")
    if narrow.random() < 0.3:
        caps.append({"usd": narrow.choice((2, 8)), "per": narrow.choice(("hour", "day")), "queue": "vision"})
    keep = Random(f"{seed}/keep").choice(("1h", "6h"))
    return parse_config(
        {
            "policy": policy,
            "cluster": {"kind": "kubernetes", "namespace": "team", "lease": False, "bind_limit": "2m"},
            "cloud": {"kind": "skypilot", "spot": "also", "lease": "20m", "launch_limit": "20m"},
            "home": {"keep": keep},
            "queues": [{"name": name} for name in ("research", "vision", "batch")],
            "caps": caps,
            "debug": {"validate": True},
        },
        "storm",
    )


def drawn_nodes(seed: int) -> dict[str, int]:
    """Names and GPUs of the cluster's nodes."""
    draw = Random(f"{seed}/nodes")
    return {f"n{number}": draw.choice((1, 2, 4)) for number in range(draw.choice((1, 2, 3)))}
