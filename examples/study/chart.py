"""Draw allocation against arrived demand as an SVG: a panel for each workload, a line for each policy.

Lines are what was replayed, bands one standard deviation either way, rings the published means, where there are any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from study.trace import Floats

WIDTH, MARGIN, GUTTER = 1180, 44, 30
HEADER, LEAD, FOOTER, CAPTION, AXIS = 92, 21, 50, 62, 44  # heights; a panel's caption is above it, its axis below
SCALE = 34  # to the left of each plot, for the figures of its axis
NAME_APART = 16
DEMAND: Final = (80, 130)  # before 80 % of demand every policy places everything
RING_AT: Final = (100, 110, 120, 130)
INK, SOFT, FAINT = "#16202c", "#556270", "#e4e8ec"
COLOURS: Final = {  # each has a contrast of at least 4.5 with white, since names are written in it
    "random": "#6b7280",
    "dot_product": "#9d4edd",
    "clustering": "#0e7490",
    "packing": "#2456d6",
    "best_fit": "#15803d",
    "fgd": "#c2410c",
    "ours": "#111827",
}
NAMED: Final = {
    "random": "Random",
    "dot_product": "Dot product",
    "clustering": "GPU clustering",
    "packing": "GPU packing",
    "best_fit": "Best fit",
    "fgd": "FGD",
    "ours": "levers9",
}
SHORT: Final = NAMED | {"clustering": "Clustering", "packing": "Packing"}
WHAT_AXES_ARE: Final = (
    "Upwards: GPU allocated, across: GPU demand that has arrived, both in % of the cluster. "
    "Dotted: all that arrives is placed."
)
STYLE: Final = f"""
text {{ font-family: Inter, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: {INK} }}
.title {{ font-size: 25px; font-weight: 700; letter-spacing: -0.3px }}
.lead {{ font-size: 14.5px; fill: {SOFT} }}
.panel {{ font-size: 16px; font-weight: 700 }}
.note {{ font-size: 12.5px; fill: {SOFT} }}
.tick {{ font-size: 12px; fill: {SOFT} }}
.name {{ font-size: 12.5px; font-weight: 500 }}
.best {{ font-weight: 700 }}
.grid {{ stroke: {FAINT} }}
.line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }}
.line.best {{ stroke-width: 3 }}
.band {{ opacity: 0.13 }}
.ring {{ fill: white; stroke-width: 1.5 }}
.lead-line {{ fill: none; stroke-width: 0.8; opacity: 0.55 }}
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One policy on one workload: percentages at 0 to 130 % of arrived demand."""

    policy: str
    mean: Floats
    deviation: Floats
    published: Floats | None  # nobody has published levers9's own


@dataclass(frozen=True, slots=True)
class Panel:
    """One workload."""

    name: str
    meaning: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Size:
    """How big panels are, and how much is written in each."""

    columns: int
    plot_height: int
    names_width: int  # to the right of each plot, for the names of its lines
    wordy: bool  # axes are named in each panel, and lines in full

    @property
    def row_height(self) -> int:
        """With what is above and below the plot, and a gap."""
        return CAPTION + self.plot_height + AXIS + (18 if self.wordy else 0)

    @property
    def column_width(self) -> float:
        """With what is left and right of the plot."""
        return (WIDTH - 2 * MARGIN - GUTTER * (self.columns - 1)) / self.columns


FEW: Final = Size(columns=2, plot_height=380, names_width=148, wordy=True)
MANY: Final = Size(columns=3, plot_height=240, names_width=116, wordy=False)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a panel's plot lies, and how percentages become pixels in it."""

    left: float
    top: float
    width: float
    height: float
    lowest: float  # allocation at the bottom, in %

    def x(self, demand_pct: float) -> float:
        """From left to right: arrived demand."""
        return self.left + self.width * (demand_pct - DEMAND[0]) / (DEMAND[1] - DEMAND[0])

    def y(self, allocated_pct: float) -> float:
        """From the bottom to the top: allocation, up to 100 %."""
        return self.top + self.height * (100 - allocated_pct) / (100 - self.lowest)

    def path(self, percents: Floats) -> str:
        """The points of a curve, as an SVG path takes them."""
        return " ".join(f"{self.x(at):.1f},{self.y(percents[at]):.1f}" for at in range(DEMAND[0], DEMAND[1] + 1))


def draw(panels: Sequence[Panel], title: str, lead: Sequence[str], source: str) -> str:
    """The whole chart as SVG text."""
    size = FEW if len(panels) <= 4 else MANY
    lines = [*lead] if size.wordy else [*lead, WHAT_AXES_ARE]
    above = HEADER + LEAD * len(lines)
    height = above + size.row_height * math.ceil(len(panels) / size.columns) + FOOTER
    lowest = _lowest(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label={quoteattr(title)}>',
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(MARGIN, 52, title, "title"),
        *(_text(MARGIN, 82 + LEAD * line, words, "lead") for line, words in enumerate(lines)),
    ]
    for index, panel in enumerate(panels):
        row, column = divmod(index, size.columns)
        left = MARGIN + SCALE + column * (size.column_width + GUTTER)
        top = above + row * size.row_height + CAPTION
        width = size.column_width - SCALE - size.names_width
        parts += _panel(panel, Frame(left, top, width, size.plot_height, lowest), size.wordy)
    parts += [_text(MARGIN, height - 22, source, "note"), "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, frame: Frame, wordy: bool) -> Iterator[str]:
    ranked = sorted(panel.series, key=lambda series: float(series.mean[-1]))
    yield f"<g id={quoteattr(panel.name)}>"
    yield _text(frame.left - SCALE, frame.top - 40, panel.name, "panel")
    yield _text(frame.left - SCALE, frame.top - 21, panel.meaning, "note")
    yield from _axes(frame)
    yield from _all_placed(frame)
    if wordy:
        yield from _what_is_what(frame)
    for series in ranked:
        yield from _curve(series, frame, "line best" if series is ranked[-1] else "line")
    for series in ranked:
        yield from _rings(series, frame)
    yield from _names(ranked[::-1], frame, NAMED if wordy else SHORT)
    yield "</g>"


def _axes(frame: Frame) -> Iterator[str]:
    right, bottom = frame.left + frame.width, frame.top + frame.height
    for percent in range(5 * math.ceil(frame.lowest / 5), 101, 5):
        y = frame.y(percent)
        yield f'<line class="grid" x1="{frame.left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(frame.left - 8, y + 4, f"{percent}", "tick", "end")
    yield f'<line stroke="{SOFT}" x1="{frame.left:.1f}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'
    for percent in range(DEMAND[0], DEMAND[1] + 1, 10):
        x = frame.x(percent)
        yield f'<line stroke="{SOFT}" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{bottom + 5:.1f}"/>'
        yield _text(x, bottom + 19, f"{percent}", "tick", "middle")


def _all_placed(frame: Frame) -> Iterator[str]:
    """The line on which everything that arrives finds a place; it can't be crossed."""
    start = max(DEMAND[0], frame.lowest)
    yield (
        f'<line stroke="{SOFT}" stroke-dasharray="2 4" x1="{frame.x(start):.1f}" y1="{frame.y(start):.1f}" '
        f'x2="{frame.x(100):.1f}" y2="{frame.y(100):.1f}"/>'
    )


def _what_is_what(frame: Frame) -> Iterator[str]:
    right, bottom = frame.left + frame.width, frame.top + frame.height
    yield _text(frame.left + 6, frame.top + 15, "GPU allocated, %", "tick")
    yield _text(right, bottom + 37, "GPU demand that has arrived, % of the cluster", "tick", "end")
    yield _text(frame.x(100) + 8, frame.top + 15, "dotted: all that arrives is placed", "tick")


def _curve(series: Series, frame: Frame, kind: str) -> Iterator[str]:
    colour = COLOURS[series.policy]
    upper = frame.path(series.mean + series.deviation)
    lower = " ".join(reversed(frame.path(series.mean - series.deviation).split()))
    yield f'<path class="band" fill="{colour}" d="M{upper} L{lower} Z"/>'
    yield f'<path class="{kind}" data-policy="{series.policy}" stroke="{colour}" d="M{frame.path(series.mean)}"/>'


def _rings(series: Series, frame: Frame) -> Iterator[str]:
    if series.published is None:
        return
    for at in RING_AT:
        x, y = frame.x(at), frame.y(series.published[at])
        yield f'<circle class="ring" stroke="{COLOURS[series.policy]}" cx="{x:.1f}" cy="{y:.1f}" r="3.4"/>'


def _names(ranked: Sequence[Series], frame: Frame, names: Mapping[str, str]) -> Iterator[str]:
    right, wanted = frame.left + frame.width, [frame.y(series.mean[-1]) for series in ranked]
    for series, from_y, y in zip(ranked, wanted, spread(wanted, NAME_APART, frame.top), strict=True):
        colour = COLOURS[series.policy]
        yield f'<path class="lead-line" stroke="{colour}" d="M{right + 5:.1f},{from_y:.1f} L{right + 17:.1f},{y:.1f}"/>'
        words = f"{names[series.policy]} {series.mean[-1]:.1f}"
        yield _text(right + 20, y + 4.5, words, "name best" if series is ranked[0] else "name", colour=colour)


def spread(wanted: Sequence[float], apart: float, least: float) -> list[float]:
    """Positions at least `apart` from one another, none below `least`, near those wanted, which come sorted."""
    groups: list[list[float]] = []  # each is moved as one, to around the mean of what its members want
    for position in wanted:
        groups.append([position])
        while len(groups) > 1 and _end(groups[-2], apart) > _start(groups[-1], apart):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [_start(group, apart) + apart * (index + 0.5) for group in groups for index in range(len(group))]
    return [max(position, least + apart * index) for index, position in enumerate(placed)]


def _start(group: Sequence[float], apart: float) -> float:
    return sum(group) / len(group) - apart * len(group) / 2


def _end(group: Sequence[float], apart: float) -> float:
    return _start(group, apart) + apart * len(group)


def _lowest(panels: Sequence[Panel]) -> float:
    seen = [float(series.mean[DEMAND[0] :].min()) for panel in panels for series in panel.series]
    return 2 * math.floor(min(*seen, DEMAND[0]) / 2)


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start", colour: str = "") -> str:
    fill = f' style="fill: {colour}"' if colour else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(words)}</text>'
