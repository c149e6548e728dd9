"""`starburst demo`: forty short jobs on an embedded cluster and cloud."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console

from starburst.app.errors import UserError
from starburst.demo.run import DemoInterruptedError, DemoLateError, run_demo, tell


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the picture and the logs go.")] = Path("demo-out"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the summary here.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=200, help="How many jobs.")] = 40,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same jobs.")] = 20,
) -> None:
    """Watch forty real jobs at work, in under 90 seconds."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    console = Console(highlight=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
        summary = run_demo(out, count=jobs, seed=seed, console=console)
        tell(summary, console)
        if json_file is not None:
            json_file.write_text(json.dumps(asdict(summary), indent=2) + "\n")
    except DemoInterruptedError as error:
        print(f"demo: {error}", file=sys.stderr)
        raise typer.Exit(130) from None
    except DemoLateError as error:
        print(f"demo: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; choose another --out or --json") from None
    if summary.lost or summary.ran_twice or summary.leaked_instances or summary.failed:
        raise typer.Exit(1)
