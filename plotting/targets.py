"""The acceptance figures of the fused kernels, from the rows of a run and nothing else.

Each line states a target, what was measured, whether it is met, over how many cells,
and the worst of them. Variants are compared by their times over dense's, which are
measured in turns in one process; plain times of different cells serve only where the
thread count differs.

    memory     for TT parameters of at most half the dense ones. What a layer has of its
               own is x, y and the parameters, and in training a gradient of each:
               analysis.layer_bytes. Bytes above that are
               scratch. Its size is planned anew for each batch, so it may step up and
               down; what it may not do is keep something for each row of x. From the
               smallest batch of a whole tile (64 rows) to the largest measured, it must
               rise by less than a row of the smaller of x and y for each row of x.
    peak       fraction_of_peak of `fused` over cubes. Its training does 2 (4 f - g) B
               operations: f multiply-adds per row in the forward; in the backward f for
               dx, f for the cores' gradients, and f - g to compute the intermediates
               again, g being those with the first core, whose result is y. Without
               the recomputation it is 6 f B, three times the forward.
    fastest    against the fastest of the other TT forms, of the dense ones where TT
               needs less than half the dense multiply-adds (r^2 + 2r < d^2 / 2 for
               three cubic cores), and of all.
    scaling    plain median times with one thread over those with two.
"""

import collections
import dataclasses
import math
import os
import statistics

from plotting import analysis
from plotting import claims
from plotting import results as results_lib
from plotting import style
from plotting import tables

MET, NOT_MET, UNKNOWN = "met", "not met", "not measured here"

THREADS = 2
KERNELS = ("fused", "fused-panel")
BEST = "best of " + ", ".join(KERNELS)

TILE_ROWS = 64  # The most rows of x that a tile of the fused kernel holds.
SHORT_NS = 50_000
SLACK, SHORT_SLACK = 1.05, 1.10
SCALED_NS = 1_000_000
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Line:
    what: str
    target: str
    measured: str
    verdict: str
    cells: int
    worst: str  # The worst cells with their figures.


def judge(results):
    """All lines, in the order of the docstring; only for variants that the run has."""
    rows = [row for row in results.rows if row.ok and row.family == "linear"]
    present = {row.variant for row in rows if analysis.is_ranked(row)}
    lines = []
    for variant in ("fused", analysis.PICKER):
        if variant in present:
            lines += memory(results, variant)
    lines += peak(rows)
    contests = _contests(results)
    lines += fastest(contests, BEST, [v for v in KERNELS if v in present])
    if analysis.PICKER in present:
        lines += fastest(contests, analysis.PICKER, [analysis.PICKER])
        lines.append(picks(contests))
    for variant in (*KERNELS, analysis.PICKER):
        if variant in present:
            lines += scaling(rows, variant)
    return lines


def _line(what, target, figures, is_met, measured, text=style.ratio_text, high_is_bad=True):
    """A line from {cell: figure}; `measured` makes the words from the figures."""
    if not figures:
        return Line(what, target, "", UNKNOWN, 0, "")
    order = sorted(figures, key=lambda cell: (figures[cell], cell), reverse=high_is_bad)
    bad = [cell for cell in order if not is_met(cell)]
    worst = bad[:_NAMED] or order[:1]
    words = ", ".join(f"{cell} {text(figures[cell])}" for cell in worst)
    if len(bad) > _NAMED:
        words += f" and {len(bad) - _NAMED} more"
    return Line(what, target, measured(list(figures.values())), NOT_MET if bad else MET,
                len(figures), words)


def _mean_line(what, target, least, figures, text):
    """A line about a geometric mean that must be at least `least`."""
    if not figures:
        return Line(what, target, "", UNKNOWN, 0, "")
    mean = statistics.geometric_mean(figures.values())
    low = min(figures, key=lambda cell: (figures[cell], cell))
    return Line(what, target, text(mean), MET if mean >= least else NOT_MET, len(figures),
                f"{low} {text(figures[low])}")


def _percent(value):
    return f"{100 * value:.1f}%"


def _times(value):
    return f"{value:.2f}x"


def forward_macs_per_row(row):
    """Multiply-adds per row of x of one contraction per core, from the last to the first."""
    n, m, ranks = ([int(size) for size in text.split("x")]
                   for text in (row.in_modes, row.out_modes, row.ranks))
    return sum(math.prod(n[:k + 1]) * math.prod(m[k:]) * ranks[k] * ranks[k + 1]
               for k in range(len(n)))


def _saves_half(row):
    n, m = analysis.sizes(row)
    return row.parameters is not None and 2 * row.parameters <= n * m


# Memory

def memory(results, variant):
    rows = [row for row in results.rows if row.ok and row.variant == variant
            and row.phase in ("inference", "train") and row.threads == THREADS
            and _saves_half(row)]
    lines = []
    for phase in ("train", "inference"):
        ratios = {row.cell: results.peak_ratio(row) for row in rows if row.phase == phase}
        ratios = {cell: ratio for cell, ratio in ratios.items() if ratio is not None}
        lines.append(_line(
            f"{variant}: {analysis.phase_words(phase)} peak over dense's", "at most 1", ratios,
            lambda cell, ratios=ratios: ratios[cell] <= 1,
            lambda found: f"at most {style.ratio_text(max(found))}"))
    off = {row.cell: gap for row in rows if (gap := _model_gap(row)) is not None}
    model = _line(
        f"{variant}: measured bytes less the cost model's", "0 in every figure", off,
        lambda cell: off[cell] == 0,
        lambda found: f"equal in {sum(gap == 0 for gap in found)} of {len(found)}",
        text=lambda gap: "without a model" if gap == math.inf else f"{gap} B")
    if model.verdict == MET:
        model = dataclasses.replace(model, worst="")
    return [*lines, model, _growth(results, variant)]


def _model_gap(row):
    """The largest difference from the model; infinite where a figure has none."""
    pairs = [(getattr(row, column), getattr(row, column + "_model"))
             for column in analysis.BYTE_COLUMNS]
    gaps = [math.inf if model is None else abs(measured - model)
            for measured, model in pairs if measured is not None]
    return max(gaps, default=None)


def _growth(results, variant):
    """The rise of the scratch per row of x, over a row of the smaller of x and y."""
    series = collections.defaultdict(dict)
    for row in (*results.rows, *results.probes):
        if (row.ok and row.variant == variant and row.phase in ("inference", "train")
                and row.threads == THREADS and row.peak_bytes is not None
                and row.dtype in analysis.ITEM_BYTES and _saves_half(row)
                and row.batch >= TILE_ROWS):
            # A pick that changes with the batch is a step too.
            pick = row.algorithm.partition(": ")[0] if variant == analysis.PICKER else ""
            series[row.shape, row.ranks, row.phase, row.dtype, pick][row.batch] = row
    rises, largest = {}, 0
    for by_batch in series.values():
        first, last = min(by_batch), max(by_batch)
        if first == last:
            continue
        row = by_batch[last]
        scratch = [by_batch[b].peak_bytes - analysis.layer_bytes(by_batch[b]) for b in (first, last)]
        per_row = (scratch[1] - scratch[0]) / (last - first)
        rises[row.cell] = per_row / (analysis.ITEM_BYTES[row.dtype] * min(analysis.sizes(row)))
        largest = max(largest, last)
    return _line(
        f"{variant}: rise of the scratch per row of x", "below a row of x or y", rises,
        lambda cell: rises[cell] < 1,
        lambda found: (f"at most {max(0, max(found)):.3f} of one up to B = {largest}; none in "
                       f"{sum(rise <= 0 for rise in found)} of {len(found)} series"),
        text=lambda rise: f"{rise:.3f}")


# The machine's peak

def peak(rows):
    cells = [row for row in rows if row.variant == "fused" and row.threads == THREADS
             and (row.d or 0) >= 8 and row.batch >= 64 and row.fraction_of_peak]
    forward = {row.cell: row.fraction_of_peak for row in cells if row.phase == "inference"}
    large = {row.cell: row.fraction_of_peak for row in cells
             if row.phase == "inference" and row.d == 16 and (row.rank or 0) >= 8}
    training = {row.cell: row.fraction_of_peak for row in cells if row.phase == "train"}
    bare = {row.cell: row.fraction_of_peak * 6 * row.batch * forward_macs_per_row(row)
            / row.flops_model for row in cells if row.phase == "train" and row.flops_model}
    mean = "geometric mean of the fraction of the FMA peak"
    lines = [
        _mean_line(f"fused: forward, d ≥ 8, B ≥ 64, {mean}", "at least 70%", 0.7, forward,
                   _percent),
        _mean_line(f"fused: forward, d = 16, r ≥ 8, B ≥ 64, {mean}", "at least 85%", 0.85,
                   large, _percent),
        _line("fused: forward, d = 16, r ≥ 8, B ≥ 64, every cell", "at least 85%", large,
              lambda cell: large[cell] >= 0.85, lambda found: f"{_percent(min(found))} or more",
              _percent, high_is_bad=False),
        _mean_line(f"fused: training, d ≥ 8, B ≥ 64, {mean}, recomputation counted",
                   "at least 60%", 0.6, training, _percent)]
    if bare:
        low = min(bare, key=lambda cell: (bare[cell], cell))
        lines.append(Line(
            "fused: the same, without the recomputation (three times the forward)", "none",
            _percent(statistics.geometric_mean(bare.values())), "for information", len(bare),
            f"{low} {_percent(bare[low])}"))
    return lines


# Against the other variants

@dataclasses.dataclass(frozen=True)
class Contest:
    """One configuration: every variant's row, and its time over dense's."""

    rows: dict
    ratios: dict

    def dense(self):
        return [name for name, row in self.rows.items() if not analysis.is_ranked(row)]


def _contests(results):
    tt, dense = collections.defaultdict(dict), collections.defaultdict(dict)
    for row in results.rows:
        if (results.time_ratio(row) is None or row.family != "linear"
                or row.threads != THREADS):
            continue
        place = (row.shape, row.batch, row.phase, row.conditions)
        if analysis.is_ranked(row):
            tt[place, row.ranks][row.variant] = row
        else:
            dense[place][row.variant] = row
    return [Contest(all_rows, {name: results.time_ratio(row) for name, row in all_rows.items()})
            for (place, _), rows in tt.items() for all_rows in [{**dense[place], **rows}]]


def fastest(contests, name, candidates):
    against_tt, against_dense, against_all, slack = {}, {}, {}, {}
    for contest in contests:
        # The better of two is not known where one was not measured, as in an unfinished run.
        if not candidates or not set(candidates) <= set(contest.ratios):
            continue
        first = min(candidates, key=lambda variant: (contest.ratios[variant], variant))
        row, ratio = contest.rows[first], contest.ratios[first]
        dense = contest.dense()
        excluded = {*candidates, *dense, *([analysis.PICKER] if name == BEST else [])}
        others = [v for key, v in contest.ratios.items() if key not in excluded]
        slack[row.cell] = SHORT_SLACK if row.time_ns < SHORT_NS else SLACK
        if others:
            against_tt[row.cell] = ratio / min(others)
        # Dense itself is 1 by definition, even where its own row was not run.
        least_dense = min([1.0, *(contest.ratios[variant] for variant in dense)])
        n, m = analysis.sizes(row)
        if 2 * forward_macs_per_row(row) < n * m:
            against_dense[row.cell] = ratio / least_dense
        against_all[row.cell] = ratio / min([least_dense, *others])
    within = f"at most {SLACK} ({SHORT_SLACK:.2f} under 50 µs)"
    near = lambda figures: lambda cell: figures[cell] <= slack[cell]
    def extent(figures):
        return lambda found: (
            f"at most {style.ratio_text(max(found))}, geometric mean "
            f"{style.ratio_text(statistics.geometric_mean(found))}, kept in "
            f"{sum(map(near(figures), figures))} of {len(found)}")
    lines = [
        _line(f"{name}: {analysis.phase_words(phase)} time over the fastest other TT form's",
              within, figures, near(figures), extent(figures))
        for phase in ("inference", "train")
        for figures in [{cell: figure for cell, figure in against_tt.items()
                         if f"/{phase}/" in cell}]]
    lines.append(_line(
        f"{name}: time over the faster dense one's, where TT needs less than half the "
        "multiply-adds", "at most 1", against_dense, lambda cell: against_dense[cell] <= 1,
        lambda found: (f"at most {style.ratio_text(max(found))}, kept in "
                       f"{sum(figure <= 1 for figure in found)} of {len(found)}")))
    everything = _line(f"{name}: time over the fastest of all, dense too", "none", against_all,
                       near(against_all), extent(against_all))
    return [*lines, dataclasses.replace(
        everything, verdict="for information" if against_all else UNKNOWN)]


def picks(contests):
    """What the pick costs, by the row of the picked variant itself: free of `auto`'s own noise."""
    costs = {}
    for contest in contests:
        auto = contest.rows.get(analysis.PICKER)
        pick = auto and auto.algorithm.partition(": ")[0]
        if pick in contest.ratios:
            least = min(contest.ratios[name] for name, row in contest.rows.items()
                        if analysis.is_ranked(row) and name != analysis.PICKER)
            costs[auto.cell] = contest.ratios[pick] / least
    line = _line(
        f"{analysis.PICKER}: time of the variant it picks over the fastest TT form's", "none",
        costs, lambda cell: costs[cell] <= SLACK,
        lambda found: (f"at most {style.ratio_text(max(found))}, geometric mean "
                       f"{style.ratio_text(statistics.geometric_mean(found))}; the fastest itself "
                       f"in {sum(cost == 1 for cost in found)} of {len(found)}"))
    return dataclasses.replace(line, verdict="for information" if costs else UNKNOWN)


# Strong scaling

def scaling(rows, variant):
    times = collections.defaultdict(dict)
    for row in rows:
        if row.variant == variant and row.time_ns:
            times[row.shape, row.ranks, row.batch, row.phase, row.dtype,
                  row.device][row.threads] = row
    gains = {by_threads[THREADS].cell: by_threads[1].time_ns / by_threads[THREADS].time_ns
             for by_threads in times.values()
             if {1, THREADS} <= set(by_threads) and by_threads[1].time_ns > SCALED_NS}
    where = f"{variant}: 1 to {THREADS} threads, cells over 1 ms"
    return [
        _mean_line(f"{where}, geometric mean", "at least 1.80x", 1.8, gains, _times),
        _line(f"{where}, every cell", "at least 1.80x", gains, lambda cell: gains[cell] >= 1.8,
              lambda found: f"{_times(min(found))} or more", _times, high_is_bad=False)]


# Output

def table(lines):
    counts = collections.Counter(line.verdict for line in lines)
    return tables.Table(
        "targets", "Acceptance figures of the fused kernels",
        ", ".join(f"{counts[verdict]} {verdict}" for verdict in (MET, NOT_MET, UNKNOWN)) + ".",
        ("figure", "target", "measured", "verdict", "cells", "worst"),
        tuple((line.what, line.target, line.measured, line.verdict, str(line.cells), line.worst)
              for line in lines), ("cells",))


def text(lines):
    """For a terminal: a line for each figure, the worst cells below it."""
    width = max((len(line.verdict) for line in lines), default=0)
    out = []
    for line in lines:
        out.append(f"{line.verdict:{width}}  {line.what}")
        out.append(f"{'':{width}}    {line.measured or 'no cell'}; target: {line.target}; "
                   f"{claims.plural(line.cells, 'cell')}")
        if line.worst:
            out.append(f"{'':{width}}    worst: {line.worst}")
    return "\n".join([*out, table(lines).note])


def check(directory):
    """Writes tables/targets.* of a run and returns the paths and what to print."""
    lines = judge(results_lib.load(directory))
    paths = tables.write([table(lines)], os.path.join(directory, "tables"))
    return paths, text(lines)
