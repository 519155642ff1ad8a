"""Figures of the attention family: bytes over the steps, what they are, what a variant needs."""

import collections
import csv
import math
import os

from matplotlib import patches
from matplotlib import ticker
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import style

EMULATED = ("clones", "clones-reuse", "prealloc-mm", "prealloc-all", "prealloc-proven")
BASELINE = "prealloc-mm"
_EMULATION = "clones and prealloc: nngraph, emulated"

# What the bytes at the peak are: name, colour, hatch.
_KINDS = (
    ("inputs, parameters and their gradients", style.GREY, ""),
    ("gradInputs of the context, by the two products", style.VERMILION, ""),
    ("nngraph's sum of those two", style.ORANGE, "////"),
    ("other gradInputs and sums", style.PURPLE, ""),
    ("outputs", style.SKY, ""),
    ("tanh of additive scores", style.BLUE, "...."),
    ("all else: activations, temporaries", style.GREEN, "\\\\\\\\"),
)
_INPUTS = ("context", "h", "word", "initial state", "v", "dy")


def read_table(directory, name):
    """The records of a CSV file beside results.csv; none if there is no such file."""
    path = os.path.join(directory, name)
    if not os.path.isfile(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kind_of(row, term):
    """The index in _KINDS of a term of a cost model."""
    if (term in _INPUTS or term.startswith(("W_", "b of", "gradient of", "Adam"))
            or term in ("sum of d(W_a)", "sum of d(W_c)", "sum of d(W_q)", "sum of d(W_s)")):
        return 0
    if row.variant in EMULATED:
        if term in ("mm1.gradInput[1]", "mm2.gradInput[2]"):
            return 1
        if term == "sum of d(context)":
            return 2
        if ".gradInput" in term or term.startswith("sum of"):
            return 3
        if term.endswith(".output"):
            return 4
    if term.startswith("tanh(keys"):
        return 5
    return 6


def size(row):
    return (row.source_len, row.target_len, row.hidden, row.layers, row.batch)


def size_words(row):
    layers = f", {row.layers} LSTM layer{'s' if row.layers > 1 else ''}" if row.layers else ""
    return (f"L = {row.source_len}, T = {row.target_len}, H = {row.hidden}, "
            f"B = {row.batch}{layers}")


def rows_of(results, *, phase="train", layers=None):
    """Attention rows of a phase; with layers = 0 those of the attention alone."""
    return [row for row in results.rows if row.family == "attention" and row.phase == phase
            and (layers is None or bool(row.layers) == bool(layers))]


def thread_rows(results, dtype="float32", phase="train"):
    """The rows of the largest size at which nearly all variants ran: the thread's."""
    groups = collections.defaultdict(list)
    for row in rows_of(results, phase=phase, layers=0):
        if row.dtype == dtype and row.ok:
            groups[size(row)].append(row)
    if not groups:
        return []
    most = max(map(len, groups.values()))
    return max((group for group in groups.values() if 3 * len(group) >= 2 * most),
               key=lambda group: (group[0].batch * group[0].source_len * group[0].hidden
                                  * group[0].target_len))


def missing_words(results, rows):
    """A sentence about the variants that did not end ok at the size of `rows`."""
    lost = [f"{row.variant} ({row.status})" for row in rows_of(results, phase=rows[0].phase)
            if not row.ok
            and size(row) == size(rows[0]) and row.dtype == rows[0].dtype]
    return f" Without a figure: {', '.join(sorted(lost))}." if lost else ""


def draw(results, palette, out, formats):
    figures = (_over_steps, _what_the_bytes_are, _ratios, _over_all)
    return [drawn for figure in figures
            for drawn in figure(results, palette, out, formats)]


def _over_steps(results, palette, out, formats):
    """Peak against T at the size that has most steps: all variants, and the lowest enlarged."""
    rows = [row for row in rows_of(results, layers=0) if row.dtype == "float32" and row.ok]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.source_len, row.hidden, row.batch].append(row)
    if not groups:
        return []
    rows = max(groups.values(), key=lambda g: (len({r.target_len for r in g}), len(g)))
    if len({row.target_len for row in rows}) < 2:
        return []
    base = rows[0]
    last = {row.variant: row for row in sorted(rows, key=lambda r: r.target_len)}
    context_bytes = (analysis.ITEM_BYTES[base.dtype] * base.batch * base.source_len * base.hidden)
    flat = {name for name, row in last.items()
            if row.peak_bytes < context_bytes * row.target_len / 2}
    growing = set(last) - flat
    panels = [(words, names) for words, names in (
        ("keep the context's size each step", growing), ("do not: enlarged", flat)) if names]
    fig, axes = style.grid(1, len(panels), panel_height=2.5, left=0.55, right=1.85, top=0.25,
                           bottom=0.42, between=1.62, header=0.42)
    for ax, (words, names) in zip(axes[0], panels):
        shown = set(last) if names is growing else names
        for name in palette.sort(shown):
            mine = sorted((r for r in rows if r.variant == name), key=lambda r: r.target_len)
            modelled = [r for r in mine if r.peak_bytes_model]
            quiet = name not in names
            color = "#BBBBBB" if quiet else palette.color(name)
            ax.plot([r.target_len for r in modelled], [r.peak_bytes_model / 1e6 for r in modelled],
                    color=color, linestyle=palette.dash(name), linewidth=0.8 if quiet else 1.1)
            if quiet:
                continue
            ax.plot([r.target_len for r in mine], [r.peak_bytes / 1e6 for r in mine], color=color,
                    linestyle="none", marker=palette.marker(name), markersize=4.5,
                    markeredgecolor="white", markeredgewidth=0.3)
        ends = [(last[name].peak_bytes / 1e6, last[name].target_len, name) for name in names]
        top = max(value for value, _, _ in ends) * 1.06
        ax.set_ylim(0, top)
        ax.set_xlim(0, max(row.target_len for row in rows) * 1.03)
        ax.set_xticks(sorted({row.target_len for row in rows}))
        ax.set_xlabel("decoder steps T")
        ax.grid(True, color="#E8E8E8", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.set_title(words, loc="left", fontweight="bold", pad=3)
        _label_ends(ax, palette, ends, top)
    axes[0][0].set_ylabel("peak memory, MB")
    style.titles(fig, "Peak memory over the decoder's steps",
                 f"{_EMULATION}. L = {base.source_len}, H = {base.hidden}, B = {base.batch}, "
                 f"training, {base.conditions.words}")
    return [_drawn(fig, out, formats, "attention-steps", "Peak memory over the decoder's steps",
                   "The clones of the emulated original keep three tensors of the context's size "
                   "for every step, the first patch and its sequel one, autograd and the rest none. "
                   "Additive scores under autograd keep one too, the tanh. Markers are measured, "
                   "lines are the cost model; grey on the left is what the right panel enlarges.",
                   "steps", rows, ("target_len", "peak_bytes", "peak_bytes_model"))]


def _label_ends(ax, palette, ends, top):
    """Names at the right end of the lines, kept apart, each as near its line as there is room."""
    apart = top * 0.075
    places = []
    for value, steps, name in sorted(ends):
        places.append([value, value, steps, name])
    # Push neighbours apart, half each, until none are too near.
    for _ in range(200):
        for low, high in zip(places, places[1:]):
            lack = apart - (high[0] - low[0])
            if lack > 0:
                low[0] -= lack / 2
                high[0] += lack / 2
        places[0][0] = max(places[0][0], top * 0.02)
        places[-1][0] = min(places[-1][0], top * 0.98)
    right = ax.get_xlim()[1]
    for place, value, steps, name in places:
        ax.annotate(f"{name}  {value:.0f} MB", xy=(steps, value), xytext=(right * 1.09, place),
                    fontsize=7, va="center", color=palette.color(name), annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "linewidth": 0.5, "relpos": (0, 0.5),
                                "color": palette.color(name), "shrinkA": 1, "shrinkB": 2})


def terms_of(results, rows):
    """{cell: [bytes of each of _KINDS]} from terms.csv."""
    by_cell = {row.cell: row for row in rows}
    sums = {}
    for record in read_table(results.directory, "terms.csv"):
        row = by_cell.get(record["cell"])
        if row is None:
            continue
        kinds = sums.setdefault(row.cell, [0] * len(_KINDS))
        kinds[kind_of(row, record["term"])] += int(record["bytes"])
    return sums


def _what_the_bytes_are(results, palette, out, formats):
    rows = thread_rows(results)
    terms = terms_of(results, rows)
    rows = [row for row in rows if row.cell in terms]
    if not rows:
        return []
    order = [*EMULATED, *(n for n in palette.order if n not in EMULATED)]
    rows.sort(key=lambda row: order.index(row.variant))
    fig, axes = style.grid(1, 1, panel_height=0.21 * len(rows) + 0.1, left=1.45, right=0.7,
                           top=0.05, bottom=0.42, header=1.02)
    ax = axes[0][0]
    for i, row in enumerate(rows):
        left = 0
        for (words, color, hatch), value in zip(_KINDS, terms[row.cell]):
            ax.barh(i, value / 1e6, left=left, height=0.72, color=color, hatch=hatch,
                    edgecolor="white", linewidth=0.3)
            left += value / 1e6
        ax.text(left, i, f"  {left:.0f} MB", va="center", fontsize=7)
    ax.set_yticks(range(len(rows)), labels=[row.variant for row in rows])
    ax.invert_yaxis()
    ax.set_xlabel("MB at the peak")
    ax.spines[["top", "right"]].set_visible(False)
    style.titles(fig, "What the bytes at the peak are",
                 f"{_EMULATION}. {size_words(rows[0])}, training, {rows[0].conditions.words}")
    used = [i for i in range(len(_KINDS)) if any(terms[row.cell][i] for row in rows)]
    style.legend(fig, [patches.Patch(facecolor=_KINDS[i][1], hatch=_KINDS[i][2],
                                     edgecolor="white", label=_KINDS[i][0]) for i in used],
                 below_top=0.44, columns=2)
    return [_drawn(fig, out, formats, "attention-bytes", "What the bytes at the peak are",
                   "Every buffer that is alive at the peak, from the cost models, whose sum is the "
                   "measured peak to the byte. The emulated clones hold three tensors of the "
                   "context's size for each step; none is an output."
                   + missing_words(results, rows), "bytes", rows,
                   ("peak_bytes", "peak_bytes_model", "held_bytes"))]


def _ratios(results, palette, out, formats):
    return [drawn for phase in ("train", "inference")
            for drawn in _ratios_in(phase, results, palette, out, formats)]


def _ratios_in(phase, results, palette, out, formats):
    rows = [row for row in thread_rows(results, phase=phase) if results.peak_ratio(row)]
    if len(rows) < 2:
        return []
    doing = analysis.phase_words(phase)
    rows.sort(key=lambda row: results.peak_ratio(row))
    timed = [row for row in rows if results.time_ratio(row)]
    fig, axes = style.grid(1, 2, panel_height=0.2 * len(rows) + 0.1, left=1.45, right=0.35,
                           top=0.22, bottom=0.42, between=0.3, header=0.42)
    for ax, ratio, words in ((axes[0][0], results.peak_ratio, "peak memory"),
                             (axes[0][1], results.time_ratio, "time")):
        for i, row in enumerate(rows):
            value = ratio(row)
            if value is None:
                continue
            ax.plot([1, value], [i, i], color=palette.color(row.variant), linewidth=1)
            ax.plot([value], [i], color=palette.color(row.variant),
                    marker=palette.marker(row.variant), markersize=4.5, linestyle="none")
            ax.annotate(style.ratio_text(value), (value, i), xytext=(5 if value >= 1 else -5, 0),
                        textcoords="offset points", va="center",
                        ha="left" if value >= 1 else "right", fontsize=7)
        ax.axvline(1, color="black", linewidth=0.8)
        ax.set_xscale("log", base=2)
        values = [v for v in map(ratio, rows) if v] or [1]
        ax.set_xlim(min(1, *values) / 2.3, max(1, *values) * 2)
        ticks = style.whole_log_ticks([min(1, *values) / 1.5, max(1, *values) * 1.5], 7)
        ax.set_xticks(ticks, labels=[style.power_text(round(math.log2(t))) for t in ticks])
        ax.minorticks_off()
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set_title(f"{words} over {BASELINE}", loc="left", fontweight="bold", pad=3)
        ax.grid(True, axis="x", color="#E8E8E8", linewidth=0.5)
    axes[0][0].set_yticks(range(len(rows)), labels=[row.variant for row in rows])
    axes[0][1].set_yticks(range(len(rows)), labels=[])
    title = f"Ratios to {BASELINE}, {doing}"
    style.titles(fig, title,
                 f"{_EMULATION}. {size_words(rows[0])}, {rows[0].conditions.words}")
    return [_drawn(fig, out, formats,
                   "attention-ratios" + ("" if phase == "train" else f"-{phase}"), title,
                   "Left, peak memory; right, time, measured in turns with the baseline in one "
                   "process." + ("" if timed else " This run did not measure time.")
                   + ("" if phase == "train" else " Without a backward no variant keeps anything "
                      "of the context's size; the emulated ones keep every step's outputs.")
                   + missing_words(results, rows), "ratios", rows,
                   ("peak_ratio_to_dense", "time_ratio_to_dense", "time_ns", "time_spread"))]


def _over_all(results, palette, out, formats):
    """Peak and time over T, L and B: for each axis the series with most points."""
    rows = [row for row in rows_of(results, layers=0) if row.dtype == "float32" and row.ok]
    axes_of = (("target_len", "decoder steps T"), ("source_len", "source length L"),
               ("batch", "batch B"))
    chosen = []
    for name, words in axes_of:
        groups = collections.defaultdict(list)
        for row in rows:
            fixed = tuple(v for (n, _), v in zip(
                (*axes_of, ("hidden", "")),
                (row.target_len, row.source_len, row.batch, row.hidden)) if n != name)
            groups[fixed].append(row)
        best = max(groups.values(), default=[],
                   key=lambda g: (len({getattr(r, name) for r in g}), len(g)))
        if len({getattr(r, name) for r in best}) > 1:
            chosen.append((name, words, best))
    if not chosen:
        return []
    variants = palette.sort(row.variant for _, _, group in chosen for row in group)
    fig, axes = style.grid(2, len(chosen), panel_height=1.6, left=0.62, right=0.1, top=0.28,
                           bottom=0.42, under=0.35, between=0.45,
                           header=0.36 + 0.155 * -(-len(variants) // 4))
    for column, (name, words, group) in enumerate(chosen):
        others = ", ".join(f"{letter} = {getattr(group[0], n)}" for n, letter in (
            ("target_len", "T"), ("source_len", "L"), ("batch", "B")) if n != name)
        for line, (field, scale) in enumerate((("peak_bytes", 1e6), ("time_ns", 1e6))):
            ax = axes[line][column]
            for variant in variants:
                mine = sorted((getattr(r, name), getattr(r, field) / scale) for r in group
                              if r.variant == variant and getattr(r, field))
                if mine:
                    ax.plot(*zip(*mine), color=palette.color(variant),
                            linestyle=palette.dash(variant), linewidth=0.9,
                            marker=palette.marker(variant), markersize=3.4,
                            markeredgecolor="white", markeredgewidth=0.3)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log", base=10)
            ticks = sorted({getattr(r, name) for r in group})
            ax.set_xticks(ticks, labels=[str(t) for t in ticks])
            ax.xaxis.minorticks_off()
            _label_decades(ax)
            ax.grid(True, color="#E8E8E8", linewidth=0.5)
            if line == 0:
                ax.set_title(others, loc="left", fontweight="bold", pad=3)
            else:
                ax.set_xlabel(words)
            if column == 0:
                ax.set_ylabel("peak, MB" if line == 0 else "time, ms")
    row = chosen[0][2][0]
    style.titles(fig, "Memory and time over steps, source and batch",
                 f"{_EMULATION}. H = {row.hidden}, training, {row.conditions.words}")
    style.legend(fig, [style.variant_handle(palette, v) for v in variants], below_top=0.44,
                 columns=4)
    used = list({row.cell: row for _, _, group in chosen for row in group}.values())
    return [_drawn(fig, out, formats, "attention-axes",
                   "Memory and time over steps, source and batch",
                   "Both axes are logarithmic. All points are measured.", "axes", used,
                   ("target_len", "source_len", "batch", "peak_bytes", "time_ns"))]


def _label_decades(ax):
    """Plain figures on a logarithmic axis: 1, 2 and 5 of a decade where it shows few."""
    low, high = ax.get_ylim()
    subs = (1, 2, 5) if high / low < 100 else (1, 3) if high / low < 1000 else (1,)
    ax.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=subs))
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(ticker.NullLocator())


def decoder_figure(sizes, out, formats):
    """Published figures beside what the model explains; `sizes` as attention_claims.decoder()."""
    if not sizes:
        return []
    parts = (("parameters and gradients", style.GREY, ""), ("generator", style.YELLOW, ""),
             ("encoder clones", style.SKY, "////"), ("decoder clones", style.BLUE, ""))
    fig, axes = style.grid(1, 1, panel_height=0.34 * len(sizes) + 0.1, left=1.25, right=0.55,
                           top=0.05, bottom=0.42, header=0.66)
    ax = axes[0][0]
    for i, row in enumerate(sizes):
        for place, values, published in ((i - 0.2, row.before, row.published[0]),
                                         (i + 0.2, row.after, row.published[1])):
            left = 0
            for (_, color, hatch), value in zip(parts, values):
                ax.barh(place, value / 1e9, left=left, height=0.34, color=color, hatch=hatch,
                        edgecolor="white", linewidth=0.3)
                left += value / 1e9
            ax.plot([published], [place], marker="D", color="black", markersize=4)
    ax.set_yticks([i + offset for i in range(len(sizes)) for offset in (-0.2, 0.2)],
                  labels=[words for row in sizes
                          for words in (f"{row.name}, clones", "shared")])
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.set_xlim(0, max(row.published[0] for row in sizes) * 1.12)
    ax.set_xlabel("GB")
    ax.spines[["top", "right"]].set_visible(False)
    style.titles(fig, "The published table, and what the step graphs explain of it",
                 "B = 64, L = T = 50, word vectors of 500, vocabulary of 50,000, float32")
    style.legend(fig, [*(patches.Patch(facecolor=c, hatch=h, edgecolor="white", label=w)
                         for w, c, h in parts),
                       Line2D([], [], color="black", marker="D", linestyle="none", markersize=4,
                              label="published")], below_top=0.44, columns=5)
    return [_drawn(fig, out, formats, "attention-decoder",
                   "The published table, and what the step graphs explain of it",
                   "Layers x hidden size. Bars: predicted from the step graphs, without sharing and "
                   "with all module buffers shared that may be. Diamonds: published, GPU memory of "
                   "the whole process; its drops are smaller, and the verdict says what is known of "
                   "why.", "decoder", (), ())]


def _drawn(fig, out, formats, stem, title, caption, section, rows, columns):
    return analysis.Drawn(stem, title, caption, section,
                          tuple(style.save(fig, style.stem(out, stem), formats)), tuple(rows),
                          columns)
