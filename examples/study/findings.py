"""What the replays found, beside what was published: a table and a chart, with words that follow from the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from rich import box
from rich.table import Table
from study.chart import NAMED, Panel, Series, draw
from study.policies import OURS, POLICIES
from study.published import published
from study.trace import VARIANTS, Floats

Curves = dict[tuple[str, str], list[list[float]]]  # by (workload, policy): a curve for each seed

CLUSTER_GPUS: Final = 6212
SOURCE: Final = (
    "Trace and published figures: Alibaba gpu-v2023 and Weng et al., USENIX ATC 2023 "
    "(hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0). Replayed with levers9."
)


def table(curves: Curves) -> Table:
    """Allocation once 130 % of demand has arrived: ours, theirs, and how far apart."""
    shown = Table(
        title="GPU allocated at 130 % of arrived demand, mean ± sd in %",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("workload", "policy"):
        shown.add_column(name, no_wrap=True)
    for name in ("replayed", "published", "apart", "GPUs idle"):
        shown.add_column(name, justify="right", no_wrap=True)
    before = ""
    for (variant, policy), ours in sorted(curves.items(), key=_in_order):
        if before and variant != before:
            shown.add_section()
        shown.add_row(variant if variant != before else "", NAMED[policy], *_figures(variant, policy, ours))
        before = variant
    return shown


def _figures(variant: str, policy: str, ours: list[list[float]]) -> Iterator[str]:
    here = np.array(ours)[:, -1]
    yield f"{here.mean():.2f} ± {here.std():.2f}"
    yield from _beside_published(variant, policy, float(here.mean()))
    yield f"{CLUSTER_GPUS * (1 - here.mean() / 100):,.0f}"


def _beside_published(variant: str, policy: str, here: float) -> tuple[str, str]:
    """What was published, and how far apart we are."""
    if policy == OURS:
        return "", ""
    there = published()[variant, policy][:, -1]
    apart = here - float(there.mean())
    colour = "green" if abs(apart) < 0.5 else "yellow" if abs(apart) < 1 else "red"
    return f"{there.mean():.2f} ± {there.std():.2f}", f"[{colour}]{apart:+.2f}[/]"


def meaning(variant: str) -> str:
    """What a workload is, in words."""
    kinds = (
        ("cpu", "{} % of all pods want no GPU"),
        ("gpushare", "{} % of GPU demand is for shares of a card"),
        ("gpuspec", "{} % of GPU pods name their card model"),
        ("multigpu", "{} % of GPU demand is for several cards a pod"),
    )
    for prefix, words in kinds:
        if variant.startswith(prefix):
            number = int(variant.removeprefix(prefix))
            return words.format(number // 10 if prefix == "cpu" else number)
    return "the pods as they were asked for"


def panels(curves: Curves) -> Iterator[Panel]:
    """What the chart shows, a workload at a time."""
    for variant in (variant for variant in VARIANTS if any(key[0] == variant for key in curves)):
        lines = [
            Series(policy, *_mean_and_deviation(curves[variant, policy]), _published_mean(variant, policy))
            for policy in POLICIES
            if (variant, policy) in curves
        ]
        yield Panel(variant, meaning(variant), lines)


def _published_mean(variant: str, policy: str) -> Floats | None:
    return None if policy == OURS else published()[variant, policy].mean(axis=0)


def _mean_and_deviation(runs: list[list[float]]) -> tuple[Floats, Floats]:
    return np.mean(runs, axis=0), np.std(runs, axis=0)


def headline(panel: Panel) -> str:
    """What the first panel found."""
    ranked = sorted(panel.series, key=lambda series: float(series.mean[-1]))
    left = [CLUSTER_GPUS * (1 - series.mean[-1] / 100) for series in (ranked[-1], ranked[0])]
    best, worst = NAMED[ranked[-1].policy], NAMED[ranked[0].policy].replace("Random", "random placement")
    if len(ranked) == 1:
        return f"{best} leaves {left[0]:,.0f} of {CLUSTER_GPUS:,} GPUs idle under overload"
    return f"{best} leaves {left[0]:,.0f} of {CLUSTER_GPUS:,} GPUs idle under overload, {worst} {left[1]:,.0f}"


def lead(shown: Sequence[Panel], replays: int) -> list[str]:
    """How to read the chart, and how far it is from what was published."""
    lines = [line for panel in shown for line in panel.series]
    apart = [abs(float(line.mean[-1] - line.published[-1])) for line in lines if line.published is not None]
    words = f"No published policy ends further than {max(apart):.2f} points from its figure. " if apart else ""
    return [
        f"{replays:,} replays of a real cluster's trace. Lines: our means, with a band of one standard deviation. "
        "Rings: the means that were published.",
        f"{words}levers9's own knows only what it has seen. The vertical axis starts well above zero."
        if any(line.policy == OURS for line in lines)
        else f"{words}The vertical axis starts well above zero.",
    ]


def draw_findings(curves: Curves) -> str:
    """The chart, as SVG text."""
    shown = list(panels(curves))
    replays = sum(len(runs) for runs in curves.values())
    return draw(shown, headline(shown[0]), lead(shown, replays), SOURCE)


def _in_order(item: tuple[tuple[str, str], list[list[float]]]) -> tuple[int, int]:
    variant, policy = item[0]
    return VARIANTS.index(variant), list(POLICIES).index(policy)
