"""A chart as an SVG picture, which follows the light or dark scheme of its reader."""

from __future__ import annotations

from xml.sax.saxutils import escape

from hatchway.statecharts.chart import NONE, Chart, Transition
from hatchway.statecharts.draw.layout import Box, Edge, caption, lay_out

STYLE = """
  svg { --ink: #1b1f24; --soft: #59636e; --line: #8c959f; --paper: #ffffff; --fill: #eef4fb; --end: #f3f3f1 }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --line: #656c76; --paper: #0d1117; --fill: #14253a; --end: #21262d }
  }
  .paper { fill: var(--paper) }
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: var(--ink) }
  text { text-anchor: middle; dominant-baseline: central }
  .label { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round }
  .condition { font-size: 11px; fill: var(--soft) }
  .state { fill: var(--fill); stroke: var(--ink); stroke-width: 1.2 }
  .final { fill: var(--end) }
  .rim { fill: none; stroke: var(--ink); stroke-width: 0.8 }
  .none { fill: none; stroke-dasharray: 3 3 }
  .line { fill: none; stroke: var(--line); stroke-width: 1.4 }
  .ours { stroke-dasharray: 5 4 }
  marker path { fill: var(--line) }
"""

MARKER = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0.6 8 4 0 7.4z"/></marker>'
)


def svg(chart: Chart) -> str:
    """The picture; rows that the specification does not have are dashed, effects stand in each row's title."""
    layout = lay_out(chart)
    width, height = round(layout.width), round(layout.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-label="{escape(chart.name)} chart">',
        f"<style>{STYLE}</style>",
        f"<defs>{MARKER}</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    pairs = list(zip(chart.rows, layout.lines, strict=True))
    lines += [_way(row, line) for row, line in pairs]
    lines += [_state(state, box, state in chart.final) for state, box in layout.boxes.items()]
    lines += [_label(chart, row, line) for row, line in pairs]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _way(row: Transition, line: Edge) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in line.points)
    return f'<polyline class="line{" ours" if row.ours else ""}" points="{points}" marker-end="url(#tip)"/>'


def _state(state: str, box: Box, final: bool) -> str:
    kind = "none" if state == NONE else "final" if final else ""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    rim = (
        f'<rect class="rim" x="{box.x + 3:.1f}" y="{box.y + 3:.1f}" width="{box.width - 6:.1f}"'
        f' height="{box.height - 6:.1f}" rx="7"/>'
    )
    middle = f'x="{box.x + box.width / 2:.1f}" y="{box.y + box.height / 2:.1f}"'
    name = escape(state)
    return f'<rect class="state {kind}" {place} rx="10"/>{rim if final else ""}<text {middle}>{name}</text>'


def _label(chart: Chart, row: Transition, line: Edge) -> str:
    event, condition = map(escape, caption(chart, row))
    (x, y), title = line.label, escape(", ".join(row.effects) or "no effect")
    upper = f'<text class="label" x="{x:.1f}" y="{y - (13 if condition else 0):.1f}">{event}</text>'
    lower = f'<text class="label condition" x="{x:.1f}" y="{y:.1f}">{condition}</text>' if condition else ""
    return f"<g><title>{title}</title>{upper}{lower}</g>"
