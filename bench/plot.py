# SPDX-License-Identifier: BSD-3-Clause
"""A plot of lines as SVG: x linear from 0 to 100, y logarithmic by decades."""
import html
import math

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 440, 70, 40, 130, 50
COLOURS = ("#1b6ca8", "#2a9d5c", "#c98a00", "#c8553d", "#7b2d8b", "#555555")


def decades(values):
    """The powers of ten that enclose all values above 0, as exponents."""
    positive = [v for v in values if v > 0] or [1]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return low, max(high, low + 1)


def svg(title, x_label, y_label, lines):
    """lines: (name, [(x, y), ...]); values of y that are not above 0 are left out."""
    low, high = decades([y for _, points in lines for _, y in points])
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x, y):
        return LEFT + x / 100 * width, TOP + (high - math.log10(y)) / (high - low) * height

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="{TOP - 16}" font-size="15">{html.escape(title)}</text>',
           f'<text x="{LEFT + width / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{html.escape(x_label)}</text>']
    for x in range(0, 101, 10):
        px = at(x, 10 ** low)[0]
        out.append(f'<path d="M{px:.1f} {TOP}V{TOP + height}" stroke="#e5e5e5"/><text x="{px:.1f}" y="{TOP + height + 16}" text-anchor="middle">{x}</text>')
    for e in range(low, high + 1):
        py = at(0, 10.0 ** e)[1]
        out.append(f'<path d="M{LEFT} {py:.1f}h{width}" stroke="#cccccc"/>'
                   f'<text x="{LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{10.0 ** e:g} {html.escape(y_label)}</text>')
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        places = [at(x, y) for x, y in points if y > 0]
        if places:
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>')
        out.append(f'<text x="{LEFT + width + 10}" y="{TOP + 14 + 18 * i}" fill="{colour}">{html.escape(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"
