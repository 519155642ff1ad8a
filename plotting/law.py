"""The crossover law: the batch from which TT needs more memory, over the rank."""

import math
import textwrap

import numpy as np
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

_PANEL_IN = 1.7
_ACROSS = 3
_ROWS_PER_FIGURE = 4
_THREAD = dict(color="#C4C4C4", linewidth=4, solid_capstyle="butt", zorder=1.5)
_METRIC_WORDS = {"held": "held for backward", "peak": "peak"}


def draw(results, palette, out, formats):
    """One figure for each number of cores and dtype: a row of panels for each d."""
    crossings = [c for c in analysis.crossings(results)
                 if c.d and c.rank and c.cores]
    drawn = []
    for cores, dtype in sorted({(c.cores, c.dtype) for c in crossings}):
        these = [c for c in crossings if (c.cores, c.dtype) == (cores, dtype)]
        if len({c.rank for c in these}) < 2 or not any(c.high for c in these):
            continue
        ds = sorted({c.d for c in these})
        lines = math.ceil(len({(c.phase, c.metric) for c in these}) / _ACROSS)
        chunk = max(1, _ROWS_PER_FIGURE // lines)
        for start in range(0, len(ds), chunk):
            part = "" if len(ds) <= chunk else f"-part{start // chunk + 1}"
            drawn.append(_figure(results, palette, out, formats, cores, dtype,
                                 [c for c in these if c.d in ds[start:start + chunk]],
                                 part))
    return drawn


def _figure(results, palette, out, formats, cores, dtype, crossings, part):
    columns = sorted({(c.phase, c.metric) for c in crossings}, key=lambda pair: (
        pair[1] != "held", analysis.phase_order([*analysis.PHASES, pair[0]]).index(pair[0])))
    ds = sorted({c.d for c in crossings})
    crossing = palette.sort(c.variant for c in crossings if c.high)
    wide = len(columns) > 1
    legend_columns = 4 if wide else 2
    entries = len(crossing) + 3
    header = 0.46 + 0.155 * math.ceil(entries / legend_columns)
    across = min(_ACROSS, len(columns))
    searched = {d: [column for column in columns
                    if any((c.d, c.phase, c.metric) == (d, *column) for c in crossings)]
                for d in ds}
    places = [(d, searched[d][i:i + across]) for d in ds
              for i in range(0, len(searched[d]), across)]
    notes = {(d, *column): _notes(
        palette, [c for c in crossings if (c.d, c.phase, c.metric) == (d, *column)],
        36 if wide else 44) for d in ds for column in columns}
    over = 0.24 + 0.115 * max(len(lines) for lines in notes.values())
    fig, axes = style.grid(
        len(places), across, width=style.PAGE_IN if wide else style.COLUMN_IN,
        panel_height=_PANEL_IN, left=0.56, right=0.1, top=over + 0.06,
        under=over + 0.3, bottom=0.42, between=0.42 if wide else 0.1, header=header)
    ranks = sorted({c.rank for c in crossings})
    bracketed = any(c.verdict == "bracketed" for c in crossings)
    for i, (d, line) in enumerate(places):
        for ax in axes[i][len(line):]:
            ax.set_visible(False)
        for j, (phase, metric) in enumerate(line):
            ax = axes[i][j]
            panel = [c for c in crossings
                     if (c.d, c.phase, c.metric) == (d, phase, metric)]
            _panel(ax, palette, panel, crossing, d, cores, ranks)
            batches = [b for c in crossings if c.d == d and c.high
                       for b in (c.low or 1, c.high)] or [1, 2]
            if cores == 3:
                batches += [d ** 3 / (2 * ranks[-1]), d ** 3 / (2 * ranks[0])]
            low, high = min(batches), max(batches)
            low, high = max(0.7, low / 1.6), high * 1.8
            ax.set_yticks(style.whole_log_ticks((max(1, low), high), 7))
            ax.set_ylim(low, high)
            ax.yaxis.set_major_formatter(lambda v, _: f"{v:.0f}")
            if j == 0:
                ax.set_ylabel("crossover batch B")
            if i == len(places) - 1:
                ax.set_xlabel("rank r")
            lines = notes[d, phase, metric]
            ax.text(0, 1.03, "\n".join(lines), transform=ax.transAxes, va="bottom",
                    fontsize=7, color="#333333", linespacing=1.15)
            ax.text(0, 1.04 + 0.115 * len(lines) / _PANEL_IN,
                    f"d = {d}: {analysis.phase_words(phase)}, "
                    f"{_METRIC_WORDS.get(metric, metric)}", transform=ax.transAxes,
                    fontsize=7.5, fontweight="bold", va="bottom")
    style.titles(fig, "From which batch TT needs more memory",
                 f"than the dense layer: {cores} cubic cores, {dtype}")
    handles = [style.variant_handle(palette, name) for name in crossing]
    handles.append(Line2D([], [], color="#555555", marker="o", markersize=4,
                          linestyle="none",
                          label="marker: measured, bar: between cells" if bracketed
                          else "marker: measured"))
    handles.append(Line2D([], [], color="#555555", label="line: cost model"))
    if cores == 3:
        handles.append(Line2D([], [], label="thread's law: 2Br = d³", **_THREAD))
    style.legend(fig, handles, below_top=0.44, columns=legend_columns)
    stem = f"law-k{cores}-{dtype}{part}"
    cells = tuple(row for row in results.rows if row.d in ds and row.cores == cores
                  and row.dtype == dtype and analysis.is_ranked(row))
    return analysis.Drawn(
        stem, f"From which batch TT needs more memory than dense, {cores} cores, "
        f"d = {', '.join(map(str, ds))}",
        "The smallest batch at which a variant's bytes pass the dense layer's, over the "
        "rank. Markers are measured"
        + (" (a bar spans the two cells between which the crossover lies)" if bracketed
           else ", exact integers found by bisection")
        + "; lines are the cost model's answer"
        + ("; the broad grey line is the thread's law 2Br = d³" if cores == 3 else "")
        + ". Below a line TT saves memory, above it TT costs more. Where markers would "
        "coincide they are moved a little sideways. Variants that never or always need "
        "more are named above the panel.",
        "law", tuple(style.save(fig, style.stem(out, stem), formats)), cells,
        ("batch", "rank", "weight_bytes", "held_bytes", "peak_bytes",
         "peak_ratio_to_dense"))


def _panel(ax, palette, panel, crossing, d, cores, ranks):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.minorticks_off()
    ax.set_xticks(ranks, labels=[str(rank) for rank in ranks])
    ax.set_xlim(ranks[0] / 1.35, ranks[-1] * 1.35)
    ax.grid(True, color="#E3E3E3", linewidth=0.5)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if cores == 3:
        r = np.array([ranks[0] / 1.35, ranks[-1] * 1.35])
        ax.plot(r, d ** 3 / (2 * r), **_THREAD)
    present = [name for name in crossing if any(c.variant == name and c.high for c in panel)]
    for i, name in enumerate(present):
        mine = sorted((c for c in panel if c.variant == name), key=lambda c: c.rank)
        shift = 2 ** (0.09 * (i - (len(present) - 1) / 2))
        look = dict(color=palette.color(name))
        model = [(c.rank, c.model) for c in mine if c.model]
        if model:
            ax.plot(*zip(*model), linestyle=palette.dash(name), linewidth=1, **look)
        points = [(c.rank * shift, c.high) for c in mine if c.verdict == "measured"]
        if points:
            ax.plot(*zip(*points), linestyle="none", marker=palette.marker(name),
                    markersize=4.8, markeredgecolor="white", markeredgewidth=0.4,
                    zorder=6, **look)
        for c in mine:
            if c.verdict == "bracketed" and c.high:
                ax.plot([c.rank * shift] * 2, [max(c.low or 1, 1), c.high], marker="_",
                        markersize=4, linewidth=1.2, zorder=6, **look)


def _notes(palette, panel, width):
    """Who never or always needs more, as lines of text."""
    lines = []
    for verdict, words in (("never", "never more"), ("always", "always more"),
                           ("beyond", "no crossover in range")):
        names = palette.sort(c.variant for c in panel if c.verdict == verdict)
        texts = []
        for name in names:
            some = [c.rank for c in panel if c.variant == name and c.verdict == verdict]
            every = len(some) == sum(c.variant == name for c in panel)
            texts.append(name if every else
                         f"{name} (r {', '.join(map(str, sorted(some)))})")
        if texts:
            lines += textwrap.wrap(f"{words}: {', '.join(texts)}", width,
                                   subsequent_indent="  ", break_on_hyphens=False)
    return lines
