"""Bars as an SVG: rows of a few values each, in panels below each other. Each value stands beside its bar."""

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

import msgspec

WIDTH: Final = 900
LEFT: Final = 190  # names of rows end here
RIGHT: Final = 110  # for the value beside the longest bar
BAR: Final = 14
BETWEEN_BARS: Final = 3
BETWEEN_ROWS: Final = 14
HEAD: Final = 74
FOOT: Final = 22
COLOURS: Final = ("#2456d6", "#6b7280", "#c2410c", "#15803d")
STYLE: Final = """
text { font-family: Inter, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; fill: #16202c }
.title { font-size: 20px; font-weight: 700 }
.lead { font-size: 13.5px; fill: #556270 }
.name, .value { font-size: 13px }
.value { fill: #556270 }
.key { font-size: 13px; font-weight: 500 }
"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A name, and a value for each of the chart's names."""

    name: str
    values: tuple[float, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A panel. `names` say what the values of each row are."""

    title: str
    lead: str
    names: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def row_height(self) -> int:
        """Of one row with its gap."""
        return len(self.names) * (BAR + BETWEEN_BARS) + BETWEEN_ROWS

    @property
    def height(self) -> int:
        """Of the panel."""
        return HEAD + len(self.rows) * self.row_height + FOOT


def draw(charts: tuple[Chart, ...]) -> str:
    """The SVG."""
    height = sum(chart.height for chart in charts)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    top = 0
    for chart in charts:
        lines += _panel(chart, top)
        top += chart.height
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(chart: Chart, top: int) -> Iterator[str]:
    yield _text("title", 20, top + 30, chart.title)
    yield _text("lead", 20, top + 52, chart.lead)
    left = float(WIDTH - 20)
    for name, colour in reversed(tuple(zip(chart.names, COLOURS))):
        left -= 9.0 * len(name) + 26
        yield f'<rect x="{left:.0f}" y="{top + 19}" width="12" height="12" fill="{colour}"/>'
        yield _text("key", left + 18, top + 30, name)
    most = max((value for row in chart.rows for value in row.values), default=0.0) or 1.0
    for number, row in enumerate(chart.rows):
        yield from _row(row, top + HEAD + number * chart.row_height, (WIDTH - LEFT - RIGHT) / most)


def _row(row: Row, top: int, scale: float) -> Iterator[str]:
    middle = top + len(row.values) * (BAR + BETWEEN_BARS) / 2 + 3
    yield _text("name", LEFT - 10, middle, row.name, anchor="end")
    for number, (value, colour) in enumerate(zip(row.values, COLOURS)):
        y = top + number * (BAR + BETWEEN_BARS)
        width = max(1.0, value * scale)
        yield f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
        yield _text("value", LEFT + width + 6, y + BAR - 3, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")


def _text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'
