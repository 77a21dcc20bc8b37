"""A flowchart of mermaid's simplest form as SVG, so that no page loads a script from elsewhere."""

import re
from html import escape

ARROW = re.compile(r'(\w+)\["([^"]+)"\] --> (\w+)\["([^"]+)"\]')


def arrows_of(chart: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Labels by node, and the arrows; ValueError for a line of another form."""
    labels: dict[str, str] = {}
    arrows = set()
    for line in chart.strip().splitlines()[1:]:
        found = ARROW.fullmatch(line.strip())
        if found is None:
            raise ValueError(f'a flowchart here has lines \'a["A"] --> b["B"]\', got {line!r}')
        source, one, target, other = found.groups()
        labels |= {source: one, target: other}
        arrows.add((source, target))
    return labels, arrows


def direct(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that do not follow from others, of a graph without a circle."""
    targets: dict[str, set[str]] = {}
    for source, target in arrows:
        targets.setdefault(source, set()).add(target)

    def below(name: str) -> set[str]:
        return {end for one in targets.get(name, ()) for end in {one} | below(one)}

    return {(a, b) for a, b in arrows if not any(b in below(one) for one in targets[a] if one != b)}


def ranks(labels: dict[str, str], arrows: set[tuple[str, str]]) -> dict[str, int]:
    """The column of every node: one more than that of the farthest node that points to it."""
    found = dict.fromkeys(labels, 0)
    for _ in labels:
        for source, target in arrows:
            found[target] = max(found[target], found[source] + 1)
    return found


def svg(chart: str, title: str) -> str:
    """The picture of a chart, left to right."""
    labels, arrows = arrows_of(chart)
    shown, column = direct(arrows), ranks(labels, arrows)
    columns: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for name in labels:
        columns[column[name]].append(name)
    widths = [max(len(labels[n]) for n in names) * 7.3 + 16 for names in columns]
    starts = [10 + sum(widths[:i]) + 44 * i for i in range(len(columns))]
    rows = max(map(len, columns))
    height, total = rows * 46 + 20, starts[-1] + widths[-1] + 10
    place = {
        name: (starts[i], (height - len(names) * 46) / 2 + 46 * j + 23)
        for i, names in enumerate(columns)
        for j, name in enumerate(names)
    }
    out = [
        f'<svg class="rooms" viewBox="0 0 {total:.0f} {height:.0f}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for source, target in sorted(shown):
        (x, y), (u, v) = place[source], place[target]
        x += widths[column[source]]
        bend = max(20.0, (u - x) / 2)
        out.append(
            f'<path marker-end="url(#tip)" d="M{x:.0f} {y:.0f} C{x + bend:.0f} {y:.0f} '
            f'{u - bend:.0f} {v:.0f} {u:.0f} {v:.0f}"/>'
        )
    for name, (x, y) in place.items():
        width = widths[column[name]]
        out.append(f'<rect x="{x:.0f}" y="{y - 13:.0f}" width="{width:.0f}" height="26" rx="4"/>')
        out.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}">{escape(labels[name])}</text>')
    return "".join([*out, "</svg>"])
