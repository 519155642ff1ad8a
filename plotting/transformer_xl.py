"""Draws the Transformer-XL experiment: plots, tables and report of a results directory.

    bazel run //plotting:transformer_xl -- results/runs/X

terms.csv, from `bazel run //benchmarks:inventory -- DIR`, says what the bytes are, and what cells that
were not run are predicted to need; without it both are left out.
"""

import os
import sys

from matplotlib import patches
from matplotlib.lines import Line2D

from plotting import analysis
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables
from plotting import transformer_xl_claims as data

INVENTORY = True  # Its figures say what the bytes are: terms.csv and buffers.csv.
_SECTIONS = (("batch", "Peak memory over the batch"), ("bytes", "What the bytes are"),
             ("forms", "Every form beside dense"), ("order", "The order of factors"),
             ("time", "Time"))
# Of data.KINDS.
_LOOKS = ((style.GREY, ""), (style.VERMILION, ""), (style.SKY, ""), (style.ORANGE, "////"),
          (style.BLACK, ""), (style.GREEN, "\\\\\\\\"))


def judge(directory):
    """The verdicts that follow from the rows of `directory`."""
    return data.judge(results_lib.load(directory))


def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    results = results_lib.load(directory)
    out = out or directory
    palette = style.Palette([row.variant for row in results.rows])
    plots = os.path.join(out, "plots")
    drawn = [figure for draw in (_batch, _bytes, _forms, _order, _time)
             for figure in draw(results, palette, plots, formats)]
    paths = [path for figure in drawn for path in figure.paths]
    built = data.build(results)
    paths += tables.write(built, os.path.join(out, "tables"))
    verdicts = data.judge(results)
    page = report.Page("a whole Transformer-XL, dense and with its position-wise layers compressed",
                       _answer(verdicts), verdicts, _SECTIONS, "//plotting:transformer_xl")
    paths.append(report.write(results, palette, drawn, built, os.path.join(out, "report.html"),
                              page))
    return paths


def _answer(verdicts):
    return tuple(f"{v.claim} {v.verdict.capitalize()}"
                 + (f": {v.measured}." if v.measured else ".") for v in verdicts)


def _drawn(fig, out, formats, name, title, caption, rows, columns):
    stem = f"transformer-xl-{name}"
    return [analysis.Drawn(stem, title, caption, name,
                           tuple(style.save(fig, style.stem(out, stem), formats)), tuple(rows),
                           columns)]


def _size_words(row):
    return (f"{row.layers} layers, {row.hidden} wide, segments and memory of {row.target_len} and "
            f"{row.source_len} tokens")


def _unit(values):
    """(bytes, name) of the unit in which the largest of `values` bytes reads well."""
    return next(((size, name) for size, name in ((1e9, "GB"), (1e6, "MB"))
                 if max(values) >= 0.5 * size), (1e3, "kB"))


def _batch(results, palette, out, formats):
    """Peak against the batch, inference and training, with dense times the thread's ratio."""
    rows = data.main_rows(results)
    usual = data.usual_layers(rows)
    rank = max((row.rank for row in rows if row.rank), default=None,
               key=lambda r: (sum(row.rank == r and row.ok for row in rows), r))
    rows = [row for row in rows if row.ok and row.peak_bytes
            and (row.baseline or (data.layers_of(row) == usual and row.rank == rank))]
    phases = [phase for phase in ("inference", "train")
              if len({row.batch for row in rows if row.phase == phase}) > 1]
    if not phases:
        return []
    shown = [row for row in rows if row.phase in phases]
    lines = [name for name in palette.order if any(
        len({r.batch for r in shown if r.variant == name and r.phase == phase}) > 1
        for phase in phases)]
    size, unit = _unit([row.peak_bytes for row in shown])
    fig, axes = style.grid(1, len(phases), panel_height=2.5, left=0.55, right=0.12, top=0.25,
                           bottom=0.42, between=0.5,
                           header=0.46 + 0.15 * -(-(len(lines) + 1) // 4))
    for ax, phase in zip(axes[0], phases):
        for name in lines:
            mine = sorted((r for r in shown if r.variant == name and r.phase == phase),
                          key=lambda r: r.batch)
            modelled = [r for r in mine if r.peak_bytes_model]
            width = 2.2 if name == "dense" else 1.1
            ax.plot([r.batch for r in modelled], [r.peak_bytes_model / size for r in modelled],
                    color=palette.color(name), linestyle=palette.dash(name), linewidth=width)
            ax.plot([r.batch for r in mine], [r.peak_bytes / size for r in mine], linestyle="none",
                    color=palette.color(name), marker=palette.marker(name), markersize=4.5,
                    markeredgecolor="white", markeredgewidth=0.3)
        dense = sorted((r.batch, r.peak_bytes / size) for r in shown
                       if r.baseline and r.phase == phase)
        if phase == "inference" and dense:
            ax.plot([b for b, _ in dense], [data.THREAD_RATIO * y for _, y in dense],
                    color=style.GREY, linestyle=":", linewidth=1.2)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ticks = _apart(sorted({r.batch for r in shown if r.phase == phase}))
        ax.set_xticks(ticks, labels=[str(t) for t in ticks])
        ax.minorticks_off()
        values = [r.peak_bytes / size for r in shown if r.phase == phase]
        ax.set_ylim(min(values) * 0.85, max(values) * 1.25)
        marks = style.whole_log_ticks([min(values) * 0.85, max(values) * 1.25], 6)
        ax.set_yticks(marks, labels=[f"{m:g}" for m in marks])
        ax.set_xlabel("sequences B")
        ax.grid(True, color="#E8E8E8", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.set_title(analysis.phase_words(phase), loc="left", fontweight="bold", pad=3)
    axes[0][0].set_ylabel(f"peak memory, {unit}")
    title = "Peak memory of the whole network over the batch"
    style.titles(fig, title, f"{_size_words(shown[0])}; r = {rank}; "
                 f"{shown[0].conditions.words}")
    handles = [style.variant_handle(palette, name) for name in lines]
    handles.append(Line2D([], [], color=style.GREY, linestyle=":", linewidth=1.2,
                          label=f"dense times {data.THREAD_RATIO:.3f}, as the thread says"))
    style.legend(fig, handles, below_top=0.44, columns=4)
    return _drawn(fig, out, formats, "batch", title,
                  "Markers are measured, lines are the cost model. Dotted: the dense network's "
                  "peak at inference times the thread's ratio, 3021 / 2132 MB. Forms that contract "
                  "core by core begin below dense, as they have fewer parameters, and pass it as "
                  "their running tensors grow with the batch; the fused kernels never do.",
                  shown, ("peak_bytes", "peak_bytes_model", "peak_ratio_to_dense"))


def _apart(batches):
    """Ticks that do not touch on a scale of powers of two."""
    kept = []
    for batch in batches:
        if not kept or batch >= 1.3 * kept[-1]:
            kept.append(batch)
    return kept


def _bytes(results, palette, out, formats):
    """Stacks of what is alive at the peak: of what ran, at the largest batch, and of what did not."""
    terms = data.terms_by_cell(results)
    usual = data.usual_layers(data.main_rows(results))
    rows = sorted((row for row in data.main_rows(results)
                   if row.cell in terms and data.layers_of(row) in ("", usual)),
                  key=lambda r: (r.batch, palette.order.index(r.variant), r.rank or 0))
    groups = []
    for phase in ("inference", "train"):
        batch = max((r.batch for r in rows if r.phase == phase and r.baseline and r.ok),
                    default=None)
        groups.append((analysis.phase_words(phase), [
            row for row in rows if row.phase == phase and row.batch == batch and row.ok
            and row.variant in ("dense", "fused", "naive", *data.CORE_BY_CORE)]))
    lost = [row for row in rows if not row.ok]
    groups.append(("not run here, predicted", [row for row in rows if not row.ok or any(
        (row.batch, row.phase) == (other.batch, other.phase) for other in lost)]))
    groups = [(words, group) for words, group in groups if group]
    if not groups:
        return []
    count = max(len(group) for _, group in groups)
    fig, axes = style.grid(len(groups), 1, panel_height=0.2 * count + 0.1, left=1.75, right=0.6,
                           top=0.25, bottom=0.42, under=0.55, header=0.72)
    for (ax,), (words, group) in zip(axes, groups):
        size, unit = _unit([sum(terms[row.cell]) for row in group])
        largest = max(sum(terms[row.cell]) for row in group) / size
        for i, row in enumerate(group):
            left = 0
            for (color, hatch), value in zip(_LOOKS, terms[row.cell]):
                ax.barh(i, value / size, left=left, height=0.72 * len(group) / count, color=color,
                        hatch=hatch, edgecolor="white", linewidth=0.3)
                left += value / size
            ax.text(left + 0.01 * largest, i, f"{left:.3g}"
                    + ("" if row.ok else f", {row.status}"), va="center", fontsize=7)
        ax.set_xlim(0, largest * 1.1)
        ax.set_ylim(len(group) - 0.5, -0.5)
        ax.set_yticks(range(len(group)), labels=[
            row.variant + (f", r = {row.rank}" if row.rank else "") + f", B = {row.batch}"
            for row in group])
        ax.set_xlabel(f"{unit} at the peak")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(words, loc="left", fontweight="bold", pad=3)
    shown = [row for _, group in groups for row in group]
    title = "What the network's peak consists of"
    style.titles(fig, title, f"{_size_words(shown[0])}; {shown[0].conditions.words}")
    used = [i for i in range(len(data.KINDS)) if any(terms[row.cell][i] for row in shown)]
    style.legend(fig, [patches.Patch(facecolor=_LOOKS[i][0], hatch=_LOOKS[i][1],
                                     edgecolor="white", label=data.KINDS[i]) for i in used],
                 below_top=0.44, columns=3)
    return _drawn(fig, out, formats, "bytes", title,
                  "Every buffer that is alive at the peak, from the cost models, whose sum is the "
                  "measured peak to the byte. Each panel has a scale of its own; what was not run "
                  "here did not fit the memory, the time or the budget.", shown,
                  ("status", "peak_bytes", "peak_bytes_model"))


def _forms(results, palette, out, formats):
    """Ratios to dense of all forms, at the batch where most ran."""
    rows = data.main_rows(results)
    usual = data.usual_layers(rows)
    panels = []
    for phase in ("inference", "train"):
        by_batch = {}
        for (variant, rank), points in data.ratios(rows, phase, usual).items():
            for batch, ratio, _, row in points:
                by_batch.setdefault((batch, rank), []).append((ratio, row))
        place = max(by_batch, key=lambda p: (len(by_batch[p]), p[0]), default=None)
        if place and len(by_batch[place]) > 3:
            panels.append((phase, place, sorted(by_batch[place], key=lambda item: item[0])))
    if not panels:
        return []
    count = max(len(points) for _, _, points in panels)
    fig, axes = style.grid(1, len(panels), panel_height=0.2 * count + 0.1, left=1.3, right=0.45,
                           top=0.25, bottom=0.42, between=1.75, header=0.42)
    for ax, (phase, (batch, rank), points) in zip(axes[0], panels):
        for i, (ratio, row) in enumerate(points):
            color = palette.color(row.variant)
            ax.plot([1, ratio], [i, i], color=color, linewidth=1)
            ax.plot([ratio], [i], color=color, marker=palette.marker(row.variant), markersize=4.5,
                    linestyle="none")
            ax.annotate(f"{ratio:.2f}", (max(ratio, 1), i), xytext=(5, 0),
                        textcoords="offset points", va="center", fontsize=7)
        ax.axvline(1, color="black", linewidth=0.8)
        top = max(ratio for ratio, _ in points)
        ax.set_xlim(min(0.75, points[0][0] * 0.95), max(1.1, top * 1.15))
        ax.set_ylim(-0.6, count - 0.4)
        ax.set_yticks(range(len(points)), labels=[row.variant for _, row in points])
        ax.set_xlabel("peak memory over the dense network's")
        ax.grid(True, axis="x", color="#E8E8E8", linewidth=0.5)
        ax.set_title(f"{analysis.phase_words(phase)}, B = {batch}, r = {rank}", loc="left",
                     fontweight="bold", pad=3)
    shown = [row for _, _, points in panels for _, row in points]
    title = "Every form of the layers beside dense"
    style.titles(fig, title, f"{_size_words(shown[0])}; {usual} and its mirror; "
                 f"{shown[0].conditions.words}")
    return _drawn(fig, out, formats, "forms", title,
                  "Peak memory of the network over the dense one's at the batch where most forms "
                  "ran; the line is the dense network.", shown,
                  ("peak_bytes", "peak_bytes_model", "peak_ratio_to_dense"))


def _order(results, palette, out, formats):
    """What is held beyond the fused network, in both orders of the factors."""
    rows = [row for row in data.main_rows(results)
            if row.ok and row.phase == "train" and data.layers_of(row)
            and row.variant in data.CORE_BY_CORE + ("naive",)
            and data.saved_elements(data.main_rows(results), row) is not None]
    groups = {}
    for row in rows:
        groups.setdefault((row.variant, row.batch, row.rank), []).append(row)
    groups = {key: sorted(group, key=data.layers_of) for key, group in groups.items()
              if len({data.layers_of(row) for row in group}) > 1}
    if not groups:
        return []
    largest = {}
    for (variant, batch, rank), group in groups.items():
        if batch >= largest.get(variant, (0, None))[0]:
            largest[variant] = (batch, group)
    bars = [row for name in palette.sort(largest) for row in largest[name][1]]
    size, unit = _unit([row.peak_bytes for row in bars])
    fig, axes = style.grid(1, 2, panel_height=0.26 * len(bars) + 0.1, left=3.05, right=0.55,
                           top=0.1, bottom=0.55, between=0.65, header=0.42)
    every = data.main_rows(results)
    for ax, value, words in (
            (axes[0][0], lambda r: data.saved_elements(every, r) / 1e3,
             "thousand elements held for each\ntoken and layer, beyond fused"),
            (axes[0][1], lambda r: r.peak_bytes / size, f"peak of training, {unit}")):
        top = max(map(value, bars))
        for i, row in enumerate(bars):
            ax.barh(i, value(row), height=0.7, color=palette.color(row.variant), linewidth=0.3,
                    edgecolor="white")
            ax.text(value(row) + 0.02 * top, i, f"{value(row):.2f}", va="center", fontsize=7)
        ax.set_xlim(0, top * 1.25)
        ax.set_ylim(len(bars) - 0.5, -0.5)
        ax.set_yticks(range(len(bars)), labels=[
            f"{row.variant}: " + data.layers_of(row).replace("+", " + ") for row in bars]
            if ax is axes[0][0] else [])
        ax.set_xlabel(words)
        ax.spines[["top", "right"]].set_visible(False)
    title = "The same network with its factors in another order"
    style.titles(fig, title, f"{_size_words(bars[0])}; r = {bars[0].rank}, B = "
                 f"{', '.join(sorted({str(row.batch) for row in bars}))}, "
                 f"training, {bars[0].conditions.words}")
    return _drawn(fig, out, formats, "order", title,
                  "Left, what the network holds for its backward beyond the fused one, which holds "
                  "nothing but the layers' inputs. Measured. Layers are written UP, with the mirror "
                  "image back, or UP + DOWN. By arithmetic the ratio is 8.1 for contractions from "
                  "left to right.", bars, ("held_bytes", "held_bytes_model", "peak_bytes"))


def _time(results, palette, out, formats):
    rows = [row for row in data.rows_of(results) if row.ok and row.time_ns]
    groups = {}
    for row in rows:
        groups.setdefault((row.phase, row.batch, data.size_of(row)), []).append(row)
    panels = [(key, group) for key, group in sorted(groups.items()) if len(group) > 1][:2]
    if not panels:
        return []
    count = max(len(group) for _, group in panels)
    fig, axes = style.grid(1, len(panels), panel_height=0.24 * count + 0.1, left=1.1, right=1.0,
                           top=0.25, bottom=0.42, between=2.0, header=0.42)
    for ax, ((phase, batch, _), group) in zip(axes[0], panels):
        group = sorted(group, key=lambda r: palette.order.index(r.variant))
        top = max(row.time_ns for row in group) / 1e6
        for i, row in enumerate(group):
            ax.barh(i, row.time_ns / 1e6, height=0.7, color=palette.color(row.variant),
                    edgecolor="white", linewidth=0.3)
            ratio = "" if row.baseline or not row.time_ratio_to_dense else (
                f", {row.time_ratio_to_dense:.2f} of dense")
            ax.text(row.time_ns / 1e6 + 0.02 * top, i, f"{row.time_ns / 1e6:.3g} ms{ratio}",
                    va="center", fontsize=7)
        ax.set_xlim(0, top * 1.12)
        ax.set_ylim(count - 0.5, -0.5)
        ax.set_yticks(range(len(group)), labels=[row.variant for row in group])
        ax.set_xlabel("ms for a segment")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(f"{analysis.phase_words(phase)}, B = {batch}", loc="left", fontweight="bold",
                     pad=3)
    shown = [row for _, group in panels for row in group]
    title = "Time of a segment through the network"
    style.titles(fig, title, f"{_size_words(shown[0])}; {shown[0].conditions.words}")
    return _drawn(fig, out, formats, "time", title,
                  "Medians; ratios are taken in turns with the dense network in one process. The "
                  "network has the published widths, with fewer layers and words.", shown,
                  ("time_ns", "time_spread", "time_ratio_to_dense"))


if __name__ == "__main__":
    sys.exit(report.draw_main("transformer_xl", draw_all, sys.argv[1:]))
