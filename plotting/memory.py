"""Memory over the batch at fixed ranks: what a layer needs, and what it holds."""

import math

from matplotlib import ticker
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

_FIGURES = {
    "peak_bytes": ("Peak memory over the batch", "peak",
                   "The most bytes alive during the phase, with parameters, gradients, "
                   "optimizer state, x and y."),
    "held_bytes": ("Held for the backward, over the batch", "held",
                   "Bytes alive after the forward only because the backward needs them: "
                   "x is counted, parameters and y are not."),
}


def draw(results, palette, out, formats):
    groups = {}
    for key, rows in analysis.cubes(results).items():
        if len({row.batch for row in rows}) < 3:
            continue
        groups.setdefault((key.conditions, key.family, key.cores), {})[key.d] = rows
    drawn = []
    for (conditions, family, cores), by_d in groups.items():
        phases = analysis.phase_order(
            row.phase for rows in by_d.values() for row in rows)
        for column in _FIGURES:
            for phase in phases:
                if column == "held_bytes" and phase != "train":
                    continue
                if any(getattr(row, column) is not None and analysis.is_ranked(row)
                       for rows in by_d.values() for row in rows if row.phase == phase):
                    drawn.append(_figure(palette, out, formats, conditions, family,
                                         cores, by_d, phase, column))
    return drawn


def chosen_ranks(ranks, most=3):
    """At most `most` of the ranks, first and last among them, evenly apart."""
    ranks = sorted(ranks)
    if len(ranks) <= most:
        return ranks
    return [ranks[round(i * (len(ranks) - 1) / (most - 1))] for i in range(most)]


def _figure(palette, out, formats, conditions, family, cores, by_d, phase, column):
    title, name, meaning = _FIGURES[column]
    ranks = chosen_ranks({row.rank for rows in by_d.values() for row in rows
                          if row.rank is not None})
    ds = sorted(d for d, rows in by_d.items() if any(
        row.phase == phase and getattr(row, column) for row in rows))
    shown = {d: [row for row in by_d[d] if row.phase == phase
                 and (row.rank in ranks or row.rank is None)] for d in ds}
    used = [row for d in ds for row in shown[d]]
    variants = palette.sort(row.variant for row in used)
    batches = sorted({row.batch for row in used})
    legend_columns = 5
    statuses = sorted({row.status for row in used if not row.ok})
    entries = len(variants) + 2 + len(statuses)
    header = 0.46 + 0.155 * math.ceil(entries / legend_columns)
    fig, axes = style.grid(len(ds), len(ranks), panel_height=1.75, left=0.72,
                           right=0.1, top=0.26, under=0.42, bottom=0.42,
                           between=0.14, header=header)
    for i, d in enumerate(ds):
        line = shown[d]
        values = [value for row in line
                  for value in (getattr(row, column), getattr(row, column + "_model"))
                  if value]
        lost = sum(1 for v in variants if any(
            not row.ok for row in line if row.variant == v))
        for j, rank in enumerate(ranks):
            ax = axes[i][j]
            _panel(ax, palette, [row for row in line if row.rank in (rank, None)],
                   variants, column, values, batches, lost)
            ax.set_title(f"d = {d}, r = {rank}", loc="left", fontweight="bold", pad=3)
            if j:
                ax.set_yticklabels([])
            else:
                ax.set_ylabel(f"{name} bytes")
            if i == len(ds) - 1:
                ax.set_xlabel("batch B (rows of x)")
            else:
                ax.set_xticklabels([])
    style.titles(fig, f"{title}: {analysis.phase_words(phase)}",
                 f"{cores} cubic cores, {conditions.words}")
    handles = [style.variant_handle(palette, v) for v in variants]
    handles += [Line2D([], [], color="#555555", marker="o", linestyle="none",
                       markersize=4, label="marker: measured"),
                Line2D([], [], color="#555555", label="line: cost model")]
    handles += [style.status_handle(status) for status in statuses]
    style.legend(fig, handles, below_top=0.44, columns=legend_columns)
    prefix = "" if family == "linear" else f"{family}-"
    stem = f"memory-{prefix}{name}-{phase}-k{cores}-{conditions.name}"
    caption = (f"{meaning} Markers are measured, lines are the cost model"
               + (", dense is the bold black line. " if "dense" in variants else ". ")
               + ("Marks along the top edge, one line for each variant, are batches "
                  "without a figure, and say why. " if statuses else "")
               + "Flat stretches are the weights; slopes are what grows with the batch.")
    return analysis.Drawn(
        stem, f"{title}: {analysis.phase_words(phase)}, {cores} cores", caption, "memory",
        tuple(style.save(fig, style.stem(out, stem), formats)), tuple(used),
        ("batch", "rank", column, column + "_model"))


def _panel(ax, palette, rows, variants, column, values, batches, lost):
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.minorticks_off()
    if not rows:
        ax.text(0.5, 0.5, "not in this run", transform=ax.transAxes, ha="center",
                va="center", fontsize=7, color="#555555")
    ax.set_xlim(batches[0] / 1.5, batches[-1] * 1.5)
    shown = batches[::max(1, math.ceil(len(batches) / 7))]
    ax.set_xticks(shown, labels=[str(batch) for batch in shown])
    ax.grid(True, color="#E8E8E8", linewidth=0.5)
    ax.set_axisbelow(True)
    low, high = math.log2(min(values)) - 0.6, math.log2(max(values)) + 0.6
    room = 0.075 * lost / (1 - 0.075 * lost) if lost < 8 else 1
    top = high + (high - low) * room
    ax.set_ylim(2 ** low, 2 ** top)
    step = max(2, 2 * math.ceil((top - low) / 16))
    first = math.ceil(low / step) * step
    ax.yaxis.set_major_locator(ticker.FixedLocator(
        [2.0 ** e for e in range(first, math.floor(high) + 1, step)]))
    ax.yaxis.set_major_formatter(lambda v, _: style.bytes_text(round(v)))
    slot = 0
    for name in variants:
        mine = sorted((row for row in rows if row.variant == name),
                      key=lambda row: row.batch)
        # The first is the boldest, so that what lies on top hides nothing.
        bold = 1 - variants.index(name) / max(1, len(variants) - 1)
        look = dict(color=palette.color(name), zorder=3 + variants.index(name) / 100)
        model = [(row.batch, getattr(row, column + "_model")) for row in mine
                 if getattr(row, column + "_model")]
        if model:
            ax.plot(*zip(*model), linestyle=palette.dash(name),
                    linewidth=3.4 if name == "dense" else 0.8 + 0.7 * bold, **look)
        points = [(row.batch, getattr(row, column)) for row in mine if getattr(row, column)]
        if points:
            ax.plot(*zip(*points), linestyle="none", marker=palette.marker(name),
                    markersize=6 if name == "dense" else 3 + 1.4 * bold, markeredgecolor="white",
                    markeredgewidth=0.3, **look)
        failed = [row for row in mine if not row.ok]
        if failed:
            y = 1 - 0.05 - 0.07 * slot
            slot += 1
            for row in failed:
                marker = style.STATUS_MARKS.get(row.status, ("1", ""))[0]
                ax.plot([row.batch], [y], transform=ax.get_xaxis_transform(),
                        linestyle="none", marker=marker, markersize=3.6,
                        markeredgewidth=1, **look)
