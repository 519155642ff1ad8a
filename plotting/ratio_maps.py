"""Maps over batch and rank: peak memory, or time, against the dense layer's."""

import math

import numpy as np
from matplotlib import cm
from matplotlib import collections
from matplotlib import colors
from matplotlib import patheffects
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style
from plotting import winner

_ROWS_PER_FIGURE = 5
_SHORT = {"step-sgd": "SGD", "step-adam": "Adam"}
_GREY_CELL = "#D9D9D9"
_BEST = dict(color=style.GREEN, linewidth=1.8)
_BEST_EDGE = dict(color="white", linewidth=3.4)

_ON_ANY_COLOR = [patheffects.withStroke(linewidth=2.6, foreground="white")]
_THREAD = dict(color="black", linestyle=":", linewidth=1.3, path_effects=_ON_ANY_COLOR)
_MODEL = dict(color="black", linestyle=(0, (4, 2)), linewidth=1)
_MEASURED = dict(color="white", linewidth=2.2, marker="o", markersize=4.4,
                 markerfacecolor="white", markeredgecolor="black",
                 markeredgewidth=0.9)
_MEASURED_EDGE = [patheffects.Stroke(linewidth=3.4, foreground="black"),
                  patheffects.Normal()]


def draw_peak(results, palette, out, formats):
    return _draw(results, palette, out, formats, "peak")


def draw_time(results, palette, out, formats):
    return _draw(results, palette, out, formats, "time")


def _draw(results, palette, out, formats, kind):
    drawn = []
    for key, everything in analysis.mapped(results).items():
        rows = [row for row in everything if row.rank is not None]
        ratio = results.peak_ratio if kind == "peak" else results.time_ratio
        if not any(ratio(row) is not None for row in rows):
            continue
        variants = palette.sort(row.variant for row in rows)
        phases = analysis.phase_order(row.phase for row in rows)
        across = max(1, 4 // len(phases))
        chunk = across * _ROWS_PER_FIGURE
        for start in range(0, len(variants), chunk):
            part = "" if len(variants) <= chunk else f"-part{start // chunk + 1}"
            drawn.append(_Map(results, key, kind, everything, phases,
                              variants[start:start + chunk], across).draw(
                                  out, formats, part))
    return drawn


class _Map:
    """One figure: a panel for each variant and phase."""

    def __init__(self, results, key, kind, rows, phases, variants, across):
        self.results = results
        self.key = key
        self.kind = kind
        self.everything = rows
        self.rows = [row for row in rows
                     if row.variant in variants and row.rank is not None]
        self.phases = phases
        self.variants = variants
        self.across = min(across, len(variants))
        self.ratio = results.peak_ratio if kind == "peak" else results.time_ratio
        self.batches = sorted({row.batch for row in rows})
        self.ranks = sorted({row.rank for row in rows if row.rank is not None})
        self.seen = set()  # what the legend has to explain

    def draw(self, out, formats, part):
        columns = self.across * len(self.phases)
        narrow = columns == 1
        legend_columns = 1 if narrow else 3
        legend_rows = 2
        while True:  # What the legend holds is known once the panels are drawn.
            fig = self._panels(columns, 0.84 + 0.16 * legend_rows, narrow)
            handles = self._handles()
            if math.ceil(len(handles) / legend_columns) == legend_rows:
                break
            legend_rows = math.ceil(len(handles) / legend_columns)
        what = "Peak memory" if self.kind == "peak" else "Time"
        style.titles(fig, f"{what} against the dense layer", self.key.words)
        self._color_bar(fig, 0.34 + 0.16 * legend_rows)
        style.legend(fig, handles, above_bottom=0.06, columns=legend_columns)
        stem = f"{'crossover' if self.kind == 'peak' else 'time'}-map-{self.key.name}{part}"
        return analysis.Drawn(
            stem, f"{what} against the dense layer, {self.key.plain}",
            self._caption(), f"{self.kind}-maps",
            tuple(style.save(fig, style.stem(out, stem), formats)), tuple(self.rows),
            ("batch", "rank", "peak_bytes", "peak_ratio_to_dense")
            if self.kind == "peak" else
            ("batch", "rank", "time_ns", "time_spread", "time_ratio_to_dense"))

    def _panels(self, columns, bottom, narrow):
        depth = math.ceil(len(self.variants) / self.across)
        fig, axes = style.grid(
            depth, columns, width=style.COLUMN_IN if narrow else style.PAGE_IN,
            panel_height=0.98, left=0.43, right=0.1, top=0.36, under=0.56,
            bottom=bottom, between=0.1, header=0.42)
        for ax in (ax for line in axes for ax in line):
            ax.set_visible(False)
        for i, variant in enumerate(self.variants):
            for j, phase in enumerate(self.phases):
                column = (i % self.across) * len(self.phases) + j
                ax = axes[i // self.across][column]
                ax.set_visible(True)
                self._panel(ax, variant, phase)
                if column == 0:
                    ax.set_ylabel("rank r")
                else:
                    ax.set_yticklabels([])
                if i + self.across >= len(self.variants):
                    ax.set_xlabel("batch B (rows of x)")
                else:
                    ax.set_xticklabels([])
        return fig

    def _panel(self, ax, variant, phase):
        cells = {(row.batch, row.rank): row for row in self.rows
                 if row.variant == variant and row.phase == phase}
        x, y = np.log2(self.batches), np.log2(self.ranks)
        x_edges, y_edges = _edges(x), _edges(y)
        values = np.full((len(y), len(x)), np.nan)
        dots, noisy, marks, grey, missing = [], [], {}, [], []
        for i, rank in enumerate(self.ranks):
            for j, batch in enumerate(self.batches):
                row = cells.get((batch, rank))
                box = (x_edges[j], x_edges[j + 1], y_edges[i], y_edges[i + 1])
                if row is None or (row.ok and self.ratio(row) is None):
                    missing.append(box)
                elif not row.ok:
                    grey.append(box)
                    marks.setdefault(row.status, []).append((x[j], y[i]))
                else:
                    ratio = self.ratio(row)
                    values[i, j] = math.log2(ratio)
                    if self.kind == "time" and (row.time_spread or 0) > analysis.NOISY_SPREAD:
                        noisy.append((x[j], y[i]))
                    if ratio > 1:
                        dots.append((x[j], y[i]))
        limit = style.RATIO_LIMIT
        ax.pcolormesh(x_edges, y_edges, np.ma.masked_invalid(values),
                      cmap=style.RATIO_MAP, vmin=-limit, vmax=limit,
                      edgecolors="white", linewidth=0.25, rasterized=False)
        for boxes, look, name in (
                (missing, dict(facecolor="white", edgecolor="#9A9A9A", hatch="////"), "missing"),
                (grey, dict(facecolor=_GREY_CELL, edgecolor="white"), None)):
            for left, right, low, high in boxes:
                ax.fill([left, right, right, left], [low, low, high, high],
                        linewidth=0.25, **look)
            if boxes and name:
                self.seen.add(name)
        if noisy:
            ax.plot(*zip(*noisy), linestyle="none", marker="s", markersize=5,
                    markerfacecolor="white", markeredgecolor="#333333",
                    markeredgewidth=0.5)
            self.seen.add("noisy")
        if dots:
            ax.plot(*zip(*dots), linestyle="none", marker="o", markersize=1.5,
                    markerfacecolor="black", markeredgecolor="none")
        for status in sorted(marks):
            marker = style.STATUS_MARKS.get(status, ("1", ""))[0]
            ax.plot(*zip(*marks[status]), linestyle="none", marker=marker,
                    markersize=3.5, color="#333333", markeredgewidth=0.8)
            self.seen.add(("status", status))
        wins = {(i, j) for i, rank in enumerate(self.ranks)
                for j, batch in enumerate(self.batches)
                if variant in self._best(phase, rank, batch)}
        if wins:
            for look in (_BEST_EDGE, _BEST):
                ax.add_collection(collections.LineCollection(
                    list(_outline(wins, x_edges, y_edges)), capstyle="projecting",
                    clip_on=False, zorder=3, **look), autolim=False)
            self.seen.add("best")
        if self.kind == "peak":
            note = self._peak_lines(ax, variant, phase, values, x, y)
        else:
            note = self._time_lines(ax, values, x, y)
        if not cells:
            note = "not in this run"
        ax.set_xlim(x_edges[0], x_edges[-1])
        ax.set_ylim(y_edges[0], y_edges[-1])
        _ticks(ax.xaxis, self.batches, 5)
        _ticks(ax.yaxis, self.ranks, 6)
        ax.tick_params(length=2, pad=1.5)
        ax.text(0, 1.20, f"{variant}", transform=ax.transAxes, va="bottom",
                fontsize=7.5, fontweight="bold")
        ax.text(0, 1.03, f"{_SHORT.get(phase, analysis.phase_words(phase))}: {note}",
                transform=ax.transAxes, va="bottom", fontsize=7, color="#333333")

    def _best(self, phase, rank, batch):
        """The variants that need least of all, the dense ones among them."""
        cells = [row for row in self.everything if row.phase == phase
                 and row.batch == batch and row.rank in (rank, None)]
        return (winner.best(cells, lambda row: row.peak_bytes, 1) if self.kind == "peak"
                else winner.best(cells, self.ratio, analysis.TIE))

    def _peak_lines(self, ax, variant, phase, values, x, y):
        key = self.key
        if key.cores == 3:
            r = np.array(_edges(y))[[0, -1]]
            ax.plot(math.log2(key.d ** 3 / 2) - r, r, **_THREAD)
            self.seen.add("thread")
        points = analysis.crossovers_of(self.results, key, phase, "peak", variant)
        points = {rank: point for rank, point in points.items() if rank in self.ranks}
        if not points:
            return self._contour(ax, values, x, y, "interpolated", "memory")
        model = [(math.log2(p.crossover_batch_model), math.log2(rank))
                 for rank, p in sorted(points.items()) if p.crossover_batch_model]
        measured = [(math.log2(p.crossover_batch), math.log2(rank))
                    for rank, p in sorted(points.items()) if p.crossover_batch]
        if measured:
            ax.plot(*zip(*measured), **_line_only(_MEASURED), path_effects=_MEASURED_EDGE)
            self.seen.add("measured")
        if model:
            ax.plot(*zip(*model), **_MODEL)
            self.seen.add("model")
        if measured:
            ax.plot(*zip(*measured), **{**_MEASURED, "linestyle": "none"})
        return _verdict_note(points, self.batches[-1])

    def _time_lines(self, ax, values, x, y):
        if self.key.cores == 3:
            even = math.sqrt(self.key.d ** 2 + 1) - 1
            edges = _edges(y)
            if even > 0 and edges[0] < math.log2(even) < edges[-1]:
                ax.axhline(math.log2(even), **_MODEL, path_effects=_ON_ANY_COLOR)
                self.seen.add("flops")
        return self._contour(ax, values, x, y, "contour", "time")

    def _contour(self, ax, values, x, y, name, what):
        known = values[~np.isnan(values)]
        if not known.size:
            return "no ratios"
        if (known <= 0).all():
            return "never more" if what == "memory" else "no slower"
        if (known > 0).all():
            return "always more" if what == "memory" else "always slower"
        if len(x) > 1 and len(y) > 1:
            ax.contour(x, y, np.ma.masked_invalid(values), levels=[0],
                       colors="black", linewidths=1.0)
            self.seen.add(name)
        better = int((known <= 0).sum())
        word = "no more" if what == "memory" else "as fast"
        return f"{word} in {better} of {known.size}"

    def _color_bar(self, fig, above_bottom):
        width, height = fig.get_size_inches()
        bar_width = min(2.6, width - 1.7)
        ax = fig.add_axes((0.5 * (width - bar_width) / width, above_bottom / height,
                           bar_width / width, 0.09 / height))
        limit = style.RATIO_LIMIT
        bar = fig.colorbar(cm.ScalarMappable(colors.Normalize(-limit, limit),
                                             style.RATIO_MAP),
                           cax=ax, orientation="horizontal", extend="both")
        bar.outline.set_linewidth(0.4)
        ticks = list(range(-limit, limit + 1, 1 if width > style.COLUMN_IN else 2))
        bar.set_ticks(ticks, labels=[style.power_text(tick) for tick in ticks])
        ax.tick_params(length=2, pad=1.5)
        ax.text(-0.08, 0.5, "less" if self.kind == "peak" else "faster",
                transform=ax.transAxes, ha="right", va="center")
        ax.text(1.08, 0.5, "more (dotted)" if self.kind == "peak" else "slower (dotted)",
                transform=ax.transAxes, ha="left", va="center")

    def _handles(self):
        line = lambda label, **look: Line2D([], [], label=label,
                                            **{"color": "black", **look})
        handles = []
        if "measured" in self.seen:
            handles.append(line("crossover measured (exact B)", **{
                **_MEASURED, "color": "black", "linewidth": 0.8}))
        if "interpolated" in self.seen:
            handles.append(line("crossover interpolated from cells", linewidth=1))
        if "contour" in self.seen:
            handles.append(line("as fast as dense (interpolated)", linewidth=1))
        if "model" in self.seen:
            handles.append(line("crossover by the cost model", **_MODEL))
        if "thread" in self.seen:
            handles.append(line("the thread's law 2Br = d³", **_THREAD))
        if "flops" in self.seen:
            handles.append(line("as many FLOPs: r² + 2r = d²", **_MODEL))
        if "best" in self.seen:
            handles.append(line("outlined: least of all variants", **_BEST))
        if "noisy" in self.seen:
            handles.append(line("spread of times over 20%", linestyle="none", marker="s",
                                markersize=5, markerfacecolor="white",
                                markeredgewidth=0.5))
        for status in sorted(s[1] for s in self.seen if isinstance(s, tuple)):
            handles.append(style.status_handle(status))
        if "missing" in self.seen:
            handles.append(style.missing_handle())
        return handles

    def _caption(self):
        if self.kind == "time":
            return ("Each square is one cell: the median time of the variant over the "
                    "dense layer's, measured in turns in the same process. Purple is "
                    "faster than dense, orange with a dot slower, white the same. A white "
                    "box marks a cell whose repetitions spread by more than 20%. The solid "
                    "line, interpolated between cells, is where both take the same time"
                    + ("; the dashed one is where one contraction per core needs as many "
                       "FLOPs as the dense product." if "flops" in self.seen else ".")
                    + (" Outlined in green: where this variant is the fastest of all, the "
                       "dense ones among them, or within 2% of it."
                       if "best" in self.seen else ""))
        exact = "measured" in self.seen
        return ("Each square is one cell: the most bytes alive during the phase "
                "(parameters, gradients, optimizer state, x, y and all else) over the "
                "dense layer's. Purple is less than dense, orange with a dot more. "
                + ("Circles on the white line are the measured crossovers, exact integers "
                   "found by bisection, and \u201cfrom B\u201d gives their range over "
                   "the ranks; the dashed line is what the cost model says. " if exact else
                   "The solid line, where there is one, is interpolated between the cells. ")
                + ("The dotted line is the thread's law 2Br = d³, which counts held "
                   "activations alone. " if self.key.cores == 3 else "")
                + ("Outlined in green: where no variant, the dense ones among them, needs "
                   "less than this one. " if "best" in self.seen else "")
                + "Cells that have no figure are drawn as what they are.")


def _verdict_note(points, largest):
    """What the panel says in words about its crossover."""
    groups = {}
    for rank, point in sorted(points.items()):
        verdict = point.verdict
        if verdict == "measured" and point.crossover_batch > largest:
            verdict = "beyond"
        groups.setdefault(verdict, []).append(rank)
    words = {"never": "never more", "always": "always more",
             "beyond": "no crossover in range"}
    if len(groups) == 1:
        only = next(iter(groups))
        if only == "measured":
            first = min(p.crossover_batch for p in points.values())
            last = max(p.crossover_batch for p in points.values())
            return f"from B = {first}" if first == last else f"from B = {first}\u2013{last}"
        return words.get(only, only)
    parts = []
    short = {"beyond": "none"}
    for verdict, ranks in groups.items():
        if verdict != "measured":
            label = (f"r {ranks[0]}" if len(ranks) == 1 else
                     f"r {ranks[0]}\u2013{ranks[-1]}")
            parts.append(f"{short.get(verdict, verdict)} at {label}")
    note = ", ".join(parts)
    return note if len(note) <= 20 else "varies, see table"


def _outline(cells, x_edges, y_edges):
    """The sides of the cells (row, column) that no two of them share, as pairs of points."""
    for i, j in sorted(cells):
        left, right, low, high = x_edges[j], x_edges[j + 1], y_edges[i], y_edges[i + 1]
        for neighbour, line in (((i, j - 1), ((left, low), (left, high))),
                                ((i, j + 1), ((right, low), (right, high))),
                                ((i - 1, j), ((left, low), (right, low))),
                                ((i + 1, j), ((left, high), (right, high)))):
            if neighbour not in cells:
                yield line


def _line_only(look):
    return {name: value for name, value in look.items() if not name.startswith("marker")}


def _edges(centers):
    centers = list(centers)
    if len(centers) == 1:
        return [centers[0] - 0.5, centers[0] + 0.5]
    middles = [(a + b) / 2 for a, b in zip(centers, centers[1:])]
    return [2 * centers[0] - middles[0], *middles, 2 * centers[-1] - middles[-1]]


def _ticks(axis, values, most):
    step = max(1, math.ceil(len(values) / most))
    shown = values[::step]
    axis.set_ticks([math.log2(value) for value in shown],
                   labels=[str(value) for value in shown])
