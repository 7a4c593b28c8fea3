"""Line and bar charts as SVG text: no libraries, and the same bytes for the same numbers."""
import math

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 34, 46
COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#2e8b57", "#6c4ab6", "#8d6e63", "#00838f", "#555555"]


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def num(x):
    return f"{x:.2f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, title, width=WIDTH, height=HEIGHT):
        self.width, self.height, self.parts = width, height, []
        self.text(LEFT, 20, title, size=14, weight="bold")

    def add(self, s):
        self.parts.append(s)

    def text(self, x, y, text, size=11, anchor="start", weight="normal", turn=None, colour="#222"):
        turned = f' transform="rotate({turn} {num(x)} {num(y)})"' if turn else ""
        self.add(f'<text x="{num(x)}" y="{num(y)}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}"{turned}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour="#999", width=1, dash=None):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def rect(self, x, y, w, h, colour):
        self.add(f'<rect x="{num(x)}" y="{num(y)}" width="{num(max(w, 0))}" height="{num(max(h, 0))}" fill="{colour}"/>')

    def render(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                'font-family="Helvetica, Arial, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n')
        return head + "\n".join(self.parts) + "\n</svg>\n"


def steps_of(top, n=5):
    """Round steps from 0 to at least `top`."""
    if top <= 0:
        return [0, 1]
    raw = top / n
    size = 10 ** math.floor(math.log10(raw))
    step = next(s * size for s in (1, 2, 2.5, 5, 10) if s * size >= raw * 0.999)
    return [i * step for i in range(int(math.ceil(top / step - 1e-9)) + 1)]


def lines(title, series, x_label, y_label, y_top=None, x_log=False, marks=None):
    """series: [(name, [(x, y), ...])]. Points above y_top leave the picture through its upper edge."""
    p = Picture(title)
    xs = [x for _, pts in series for x, _ in pts]
    y_top = y_top or max(y for _, pts in series for _, y in pts)
    y_ticks = steps_of(y_top)
    y_top = y_ticks[-1]
    if x_log:
        x_ticks = sorted(set(xs))
        lo, hi = math.log(min(xs)), math.log(max(xs))
        fx = lambda x: LEFT + (math.log(x) - lo) / (hi - lo) * (WIDTH - LEFT - RIGHT)
    else:
        x_ticks = steps_of(max(xs), 6)
        fx = lambda x: LEFT + x / x_ticks[-1] * (WIDTH - LEFT - RIGHT)
    fy = lambda y: HEIGHT - BOTTOM - y / y_top * (HEIGHT - TOP - BOTTOM)
    for t in y_ticks:
        p.line(LEFT, fy(t), WIDTH - RIGHT, fy(t), "#e5e5e5")
        p.text(LEFT - 6, fy(t) + 4, num(t), anchor="end")
    for t in x_ticks:
        p.text(fx(t), HEIGHT - BOTTOM + 16, num(t), anchor="middle")
    p.line(LEFT, fy(0), WIDTH - RIGHT, fy(0), "#444")
    p.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, anchor="middle")
    p.text(16, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", turn=-90)
    for i, (name, pts) in enumerate(series):
        colour, shown = COLOURS[i % len(COLOURS)], []
        for k, (x, y) in enumerate(pts):
            if y <= y_top:
                shown.append((fx(x), fy(y)))
                continue
            if k > 0 and pts[k - 1][1] <= y_top:  # where the line crosses the edge
                x0, y0 = pts[k - 1]
                shown.append((fx(x0 + (x - x0) * (y_top - y0) / (y - y0)), fy(y_top)))
            break
        path = " ".join(f"{num(x)},{num(y)}" for x, y in shown)
        p.add(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in shown:
            p.add(f'<circle cx="{num(x)}" cy="{num(y)}" r="2.5" fill="{colour}"/>')
        p.rect(WIDTH - RIGHT + 12, TOP + 18 * i, 12, 12, colour)
        p.text(WIDTH - RIGHT + 30, TOP + 18 * i + 10, name)
    for y, name in marks or []:
        p.line(LEFT, fy(y), WIDTH - RIGHT, fy(y), "#888", dash="4 3")
        p.text(WIDTH - RIGHT - 4, fy(y) - 4, name, anchor="end", colour="#666")
    return p.render()


def stacked(title, names, parts, y_label):
    """names: of the bars; parts: [(label, [value of each bar])], in per cent."""
    p = Picture(title)
    fy = lambda y: HEIGHT - BOTTOM - y / 100 * (HEIGHT - TOP - BOTTOM)
    for t in range(0, 101, 20):
        p.line(LEFT, fy(t), WIDTH - RIGHT, fy(t), "#e5e5e5")
        p.text(LEFT - 6, fy(t) + 4, t, anchor="end")
    slot = (WIDTH - LEFT - RIGHT) / len(names)
    for b, name in enumerate(names):
        base, x = 0.0, LEFT + slot * (b + 0.18)
        for i, (_, values) in enumerate(parts):
            v = values[b]
            p.rect(x, fy(base + v), slot * 0.64, fy(base) - fy(base + v), COLOURS[i % len(COLOURS)])
            if v >= 6:
                p.text(x + slot * 0.32, fy(base + v / 2) + 4, f"{v:.1f}", anchor="middle", colour="white")
            base += v
        p.text(LEFT + slot * (b + 0.5), HEIGHT - BOTTOM + 16, name, anchor="middle")
    for i, (label, _) in enumerate(parts):
        p.rect(WIDTH - RIGHT + 12, TOP + 18 * i, 12, 12, COLOURS[i % len(COLOURS)])
        p.text(WIDTH - RIGHT + 30, TOP + 18 * i + 10, label)
    p.line(LEFT, fy(0), WIDTH - RIGHT, fy(0), "#444")
    p.text(16, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", turn=-90)
    return p.render()


def bars(title, groups, series, y_label):
    """groups: names along x; series: [(label, [value of each group])]."""
    p = Picture(title)
    ticks = steps_of(max(v for _, values in series for v in values))
    fy = lambda y: HEIGHT - BOTTOM - y / ticks[-1] * (HEIGHT - TOP - BOTTOM)
    for t in ticks:
        p.line(LEFT, fy(t), WIDTH - RIGHT, fy(t), "#e5e5e5")
        p.text(LEFT - 6, fy(t) + 4, num(t), anchor="end")
    slot = (WIDTH - LEFT - RIGHT) / len(groups)
    w = slot * 0.8 / len(series)
    for i, (label, values) in enumerate(series):
        for g, v in enumerate(values):
            x = LEFT + slot * (g + 0.1) + w * i
            p.rect(x, fy(v), w * 0.92, fy(0) - fy(v), COLOURS[i % len(COLOURS)])
            p.text(x + w * 0.46, fy(v) - 3, num(v), size=9, anchor="middle")
        p.rect(WIDTH - RIGHT + 12, TOP + 18 * i, 12, 12, COLOURS[i % len(COLOURS)])
        p.text(WIDTH - RIGHT + 30, TOP + 18 * i + 10, label)
    for g, name in enumerate(groups):
        p.text(LEFT + slot * (g + 0.5), HEIGHT - BOTTOM + 16, name, anchor="middle")
    p.line(LEFT, fy(0), WIDTH - RIGHT, fy(0), "#444")
    p.text(16, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", turn=-90)
    return p.render()
