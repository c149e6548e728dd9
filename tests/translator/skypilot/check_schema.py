"""Checks with SkyPilot itself that every golden task is one: run it with a Python that has SkyPilot.

    python check_schema.py [DIRECTORY]

Nothing of this project is imported, no cloud is asked, and the SkyPilot state of the user stays untouched: a
home of its own holds a catalog of the GPU types that the cases name. Exit code 1 if a task is none.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

GPUS = [
    "GB200",
    "B200",
    "H200",
    "H100",
    "H100-MEGA-80GB",
    "A100",
    "A100-80GB",
    "A10G",
    "L40S",
    "L4",
    "V100",
    "V100-32GB",
    "T4",
    "RTX4090",
]
AMD = ("MI300X",)


def seed(home: Path) -> None:
    """A catalog written by hand, which SkyPilot does not fetch anew."""
    common = home / ".sky/catalogs/v8/common"
    common.mkdir(parents=True)
    names = [*GPUS, *AMD]
    (common / "accelerators.csv").write_text(
        "AcceleratorName,Clouds\n" + "".join(f"{name},['AWS']\n" for name in names)
    )
    (common / "metadata.csv").write_text(
        "GPU,MemoryGB,Manufacturer\n"
        + "".join(f"{name},80,{'AMD' if name in AMD else 'NVIDIA'}\n" for name in names)
    )


def problems(directory: Path) -> tuple[int, list[str]]:
    """How many tasks there are, and what SkyPilot says against them."""
    import sky
    import yaml

    count, found = 0, []
    for path in sorted(directory.glob("*.task.yaml")):
        for config in yaml.safe_load_all(path.read_text()):
            if config is None:
                continue
            count += 1
            written = dict(config)
            try:
                task = sky.Task.from_yaml_config(config)
                task.validate_name()
                task.expand_and_validate_file_mounts()
            except Exception as error:
                found.append(f"{path.name}: {type(error).__name__}: {error}")
                continue
            if task.run != written.get("run") or task.num_nodes != written.get("num_nodes", 1):
                found.append(f"{path.name}: SkyPilot reads another run or number of nodes")
            if dict(task.envs) != written.get("envs", {}):
                found.append(f"{path.name}: SkyPilot reads other envs")
            found += [f"{path.name}: {problem}" for problem in bad_labels(written.get("resources", {}))]
    return count, found


def bad_labels(resources: dict[str, Any]) -> list[str]:
    """Labels that a cloud the task may go to does not take."""
    from sky import clouds

    possible = {"aws": (clouds.AWS,), "gcp": (clouds.GCP,)}
    infra = resources.get("infra", "*").partition("/")[0]
    return [
        str(why)
        for key, value in resources.get("labels", {}).items()
        for cloud in possible.get(infra, (clouds.AWS, clouds.GCP))
        for valid, why in [cloud.is_label_valid(key, value)]
        if not valid
    ]


def main() -> int:
    """Print a line for each problem, and how many tasks were looked at."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "cases"
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
        seed(Path(home))
        count, found = problems(directory)
    print("\n".join([*found, f"{count} tasks, {len(found)} problems"]))
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
