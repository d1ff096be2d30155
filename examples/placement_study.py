"""Which placement policy leaves the fewest GPUs idle? Replays a public GPU trace as parallel calls of one job.

Each call fills the 1,213 nodes of a published Alibaba cluster with pods under one policy, for one workload and seed:
the policies are those of levers9's scheduler. The result stands beside what the FGD paper (USENIX ATC 2023) published,
as a table and as a chart.

    python examples/placement_study.py --short
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import levers9

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that its parts are found, wherever it is loaded from
from study.findings import Curves, draw_findings, table
from study.policies import POLICIES
from study.simulator import fill
from study.trace import VARIANTS

Case = tuple[str, str, int]  # policy, workload, seed

FIRST_SEED: Final = 42  # as in the paper


@levers9.job(cpu=1.0, memory=512)
def replay(case: Case) -> list[float]:
    """Replay one case: allocation in % at 0 to 130 % of arrived demand."""
    policy, variant, seed = case
    return fill(policy, variant, seed).allocated_pct


def run(cases: Sequence[Case], results: Iterable[list[float]], console: Console) -> Curves:
    """Gather the results, which come in the order of the cases, and show how far it is."""
    curves: Curves = {}
    columns = (
        TextColumn("[bold]replays"),
        BarColumn(bar_width=18),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f}/s"),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("[dim]{task.fields[last]}"),
    )
    began_s = time.monotonic()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("replays", total=len(cases), rate=0.0, last="")
        for done, ((policy, variant, _), curve) in enumerate(zip(cases, results, strict=True), start=1):
            curves.setdefault((variant, policy), []).append(curve)
            rate = done / max(time.monotonic() - began_s, 1e-3)
            progress.update(bar, advance=1, rate=rate, last=f"{policy} {variant} {curve[-1]:.1f}")
    return curves


def count(text: str) -> int:
    """A number of things, at least one."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="2 workloads and 3 seeds instead of 17 and 10")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="workloads (default: all, or 2 with --short)")
    parser.add_argument("--seeds", type=count, help="how many (default: 10, or 3 with --short)")
    parser.add_argument("--out", type=Path, default=Path("placement_study.svg"), help="where the chart goes")
    parser.add_argument("--local", action="store_true", help="run in this process, without a control plane")
    asked = parser.parse_args()
    if not asked.out.resolve().parent.is_dir():
        parser.error(f"there is no folder for {asked.out}; make it, or name another file with --out")
    asked.variants = asked.variants or (["default", "gpushare40"] if asked.short else list(VARIANTS))
    asked.seeds = asked.seeds or (3 if asked.short else 10)
    return asked


def main() -> None:
    """Run the study, print its table, write its chart."""
    asked, console = arguments(), Console()
    seeds = range(FIRST_SEED, FIRST_SEED + asked.seeds)
    cases = [(policy, variant, seed) for variant in asked.variants for policy in asked.policies for seed in seeds]
    results = map(replay.local, cases) if asked.local else replay.map(cases)
    curves = run(cases, results, console)
    console.print(table(curves))
    asked.out.write_text(draw_findings(curves), encoding="utf-8")
    console.print(f"The chart is at [bold]{asked.out.resolve()}[/bold]")


if __name__ == "__main__":
    main()
