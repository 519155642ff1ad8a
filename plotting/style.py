"""What all figures share: colours, markers, sizes, ticks, and saving.

Colours are the Okabe-Ito set; each variant also has a marker and a dash of its
own, so figures can be read in grey. Sizes are those of print: 3.3 in is a
column, 6.9 in a page, and nothing is set below 7 points.
"""

import math
import os

import matplotlib

matplotlib.use("Agg")

from matplotlib import colors
from matplotlib import figure
from matplotlib import patches
from matplotlib.lines import Line2D

COLUMN_IN = 3.3
PAGE_IN = 6.9
FORMATS = ("svg", "pdf", "png")

matplotlib.rcParams.update({
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.4,
    "lines.linewidth": 1.1,
    "legend.frameon": False,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "ttbench",
    "savefig.dpi": 200,
})

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#767676"

# variant: colour, marker, dashes, letter
_KNOWN = {
    "dense": (BLACK, "o", "-", "D"),
    "dense-onednn": (GREY, "s", "-", "O"),
    "naive": (VERMILION, "v", "-", "N"),
    "einsum": (PURPLE, "P", "-", "E"),
    "einsum-cores-first": ("#8A3F6B", "X", "--", "C"),
    "sequential": (BLUE, "^", "-", "S"),
    "sequential-l2r": (SKY, "<", "--", "L"),
    "sequential-bmm": ("#00466E", ">", ":", "B"),
    "merged": (YELLOW, "h", "-", "M"),
    "recompute": (ORANGE, "d", "-", "R"),
    "projected": ("#9A6A00", "p", "--", "P"),
    "fused": (GREEN, "*", "-", "F"),
    "fused-panel": ("#7FC97F", "D", "--", "U"),
    "auto": ("#00583F", "H", "--", "A"),
}
ATTENTION = {
    "prealloc-mm": (BLACK, "o", "-", "M"),
    "clones": (VERMILION, "v", "-", "C"),
    "clones-reuse": ("#8A3F6B", "X", "--", "R"),
    "prealloc-all": (BLUE, "^", "-", "P"),
    "prealloc-proven": (SKY, "<", "--", "V"),
    "autograd": (GREEN, "*", "-", "G"),
    "batched": ("#00583F", "H", "--", "B"),
    "sdpa": (ORANGE, "d", "-", "S"),
    "sdpa-batched": ("#9A6A00", "p", "--", "T"),
    "additive": (PURPLE, "P", "-", "D"),
    "additive-checkpointed": (GREY, "s", "--", "K"),
    "fused-additive": ("#7FC97F", "D", "-", "F"),
    "fused-additive-batched": ("#8C8C00", "h", "--", "U"),
}
_OTHER = [(color, marker, dash)
          for dash in ("-.", ":", "--")
          for color, marker in zip(
              (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY),
              ("D", "8", "p", "h", "d", "X", "P"))]


class Palette:
    """Looks of the variants in one run: a family's known names first, others in a cycle."""

    def __init__(self, variants, looks=None):
        looks = _KNOWN if looks is None else looks
        known = list(looks)
        self.order = sorted(set(variants), key=lambda name: (
            known.index(name) if name in looks else len(known), name))
        self._looks = {}
        used = {looks[name][3] for name in self.order if name in looks}
        others = 0
        for name in self.order:
            if name in looks:
                self._looks[name] = looks[name]
                continue
            spare = [c for c in name.upper() + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "abcdefghijklmnopqrstuvwxyz0123456789"
                     if c.isalnum() and c not in used]
            letter = spare[0] if spare else "?"
            used.add(letter)
            self._looks[name] = _OTHER[others % len(_OTHER)] + (letter,)
            others += 1

    def color(self, name):
        return self._looks[name][0]

    def marker(self, name):
        return self._looks[name][1]

    def dash(self, name):
        return self._looks[name][2]

    def letter(self, name):
        return self._looks[name][3]

    def sort(self, names):
        return sorted(set(names), key=self.order.index)


def grid(rows, cols, *, width=PAGE_IN, panel_height=1.2, left=0.5, right=0.1,
         top=0.35, bottom=0.45, between=0.12, under=0.35, header=0.0):
    """A figure with rows x cols panels; every length is in inches.

    `header` is room above the panels, for a title and a legend.
    """
    height = header + top + rows * panel_height + (rows - 1) * under + bottom
    fig = figure.Figure(figsize=(width, height))
    panel_width = (width - left - right - (cols - 1) * between) / cols
    axes = []
    for i in range(rows):
        y = bottom + (rows - 1 - i) * (panel_height + under)
        axes.append([fig.add_axes((
            (left + j * (panel_width + between)) / width, y / height,
            panel_width / width, panel_height / height)) for j in range(cols)])
    return fig, axes


def save(fig, stem, formats):
    """Writes the figure once in each format, without dates; returns the paths."""
    paths = []
    for kind in formats:
        path = f"{stem}.{kind}"
        metadata = {"svg": {"Date": None},
                    "pdf": {"CreationDate": None}}.get(kind)
        fig.savefig(path, format=kind, metadata=metadata)
        paths.append(path)
    return paths


def titles(fig, title, detail):
    """A title and one line of detail at the upper left of the figure."""
    width, height = fig.get_size_inches()
    fig.text(0.06 / width, 1 - 0.06 / height, title, va="top", ha="left",
             fontsize=9, fontweight="bold")
    fig.text(0.06 / width, 1 - 0.24 / height, detail, va="top", ha="left",
             fontsize=7.5, color="#444444")


def legend(fig, handles, *, below_top=None, above_bottom=None, columns=4,
           left=0.06):
    """A legend at a distance (inches) from the top or the bottom edge."""
    width, height = fig.get_size_inches()
    if below_top is not None:
        where, anchor = "upper left", (left / width, 1 - below_top / height)
    else:
        where, anchor = "lower left", (left / width, above_bottom / height)
    return fig.legend(handles=handles, loc=where, bbox_to_anchor=anchor,
                      ncols=columns, borderaxespad=0, borderpad=0.1,
                      handlelength=2.2, columnspacing=1.4, labelspacing=0.35)


def variant_handle(palette, name, label=None, line=True):
    return Line2D([], [], color=palette.color(name), marker=palette.marker(name),
                  linestyle=palette.dash(name) if line else "none",
                  markersize=4.5, linewidth=3 if name == "dense" else 1.1,
                  label=label or name)


# A map shows: less than dense, purple; as much, white; more, orange and a dot,
# which is what tells more from less where colours are missing.
RATIO_MAP = colors.LinearSegmentedColormap.from_list("less_more", [
    "#2D004B", "#542788", "#8073AC", "#B2ABD2", "#F7F7F7",
    "#FDB863", "#E08214", "#B35806", "#7F3B08"]).with_extremes(bad=(0, 0, 0, 0))
RATIO_LIMIT = 4  # powers of two either side of 1

STATUS_MARKS = {  # marker, words
    "oom": ("x", "out of memory"),
    "skipped": ("_", "skipped"),
    "timeout": ("|", "timed out"),
    "crashed": ("P", "crashed"),
    "wrong": ("D", "wrong result"),
}


def status_handle(status):
    marker, words = STATUS_MARKS.get(status, ("1", status))
    return Line2D([], [], color="#333333", marker=marker, linestyle="none",
                  markersize=4, label=words)


def missing_handle():
    return patches.Patch(facecolor="white", edgecolor="#9A9A9A", hatch="////",
                         linewidth=0.4, label="not in this run")


def whole_log_ticks(values, most):
    """Powers of two within `values`, thinned evenly to at most `most`."""
    low = math.ceil(math.log2(min(values)) - 1e-9)
    high = math.floor(math.log2(max(values)) + 1e-9)
    step = max(1, math.ceil((high - low + 1) / most))
    return [2 ** e for e in range(low, high + 1, step)]


def ratio_text(value):
    """0.43, 1.2, 16: three figures at most."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def power_text(exponent):
    """The label of 2**exponent as a ratio: 1/4, 1, 4."""
    return str(2 ** exponent) if exponent >= 0 else f"1/{2 ** -exponent}"


def bytes_text(value):
    for unit, size in (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value} B"


def stem(directory, *parts):
    os.makedirs(directory, exist_ok=True)
    return os.path.join(directory, "-".join(parts))
