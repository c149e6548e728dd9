"""Asks whether locked versions have known vulnerabilities: `make audit`.

Exit code 1 if one has. Packages for which the advisory data cannot be had are counted as not audited; that is
no failure, for nothing was found out about them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 300


def main() -> int:
    """Audit every lock file, and say what came of it in a line each."""
    found = 0
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        found += _audit(lock)
    return min(found, 1)


def _audit(lock: Path) -> int:
    """How many packages of a lock file have known vulnerabilities."""
    tool = Path(sys.executable).with_name("pip-audit")
    command = [str(tool), "--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off"]
    try:
        done = subprocess.run(
            [*command, "-r", str(lock)], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print(f"{lock.name}: not audited: the advisory data cannot be had from here")
        return 0
    asked = [package for package in packages if "skip_reason" not in package]
    bad = [package for package in asked if package["vulns"]]
    for package in bad:
        for one in package["vulns"]:
            fixed = ", ".join(one["fix_versions"]) or "none"
            print(f"{lock.name}: {package['name']} {package['version']}: {one['id']}; fixed in: {fixed}")
    if asked:
        print(f"{lock.name}: {len(asked)} packages audited, {len(bad)} with known vulnerabilities")
    if len(asked) < len(packages):
        unasked = len(packages) - len(asked)
        print(f"{lock.name}: {unasked} packages not audited: the advisory data cannot be had from here")
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
