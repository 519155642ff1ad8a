"""Whether the time of a cell changed, judged from repeated passes over the same cells.

A sample is time_ratio_to_dense of one cell in one pass, or its time where the passes of both sides
were run in turns. What all cells of a pass have in common (the machine's and the dense layer's own
luck in that pass) is taken out first. Each judgement uses samples twice, and
never the same: one part of the passes finds the suspicious cells; another part, or fresh passes
over those cells alone, confirms them. So a cell picked for its bad luck is not judged by it.

The test is the exact permutation test of the rank sum (Wilcoxon, Mann and Whitney), one-sided, with
Holm's correction over all suspicious cells: FALSE_ALARMS bounds the chance that a comparison calls
any cell at all where none changed.
"""

import collections
import dataclasses
import functools
import math
import random
import statistics

FALSE_ALARMS = 0.01
SCREEN_P = 0.2
CLEAR_P = 0.05  # A confirmation less likely than this by chance, but not called, stays ambiguous.
MIN_EFFECT = 0.03  # Changes below it are not worth a call, whatever the test says.
SHORT_NS = 100_000  # Cells below have a noise of their own.
CONTROLS = 12
_NULL_QUANTILE = 0.9
_FEWEST_NULL_SHIFTS = 5  # A quantile of fewer says nothing.


@functools.lru_cache(maxsize=256)
def _subset_sums(ranks, size):
    """Counter of the sums of all subsets of that size."""
    sums = [collections.Counter() for _ in range(size + 1)]
    sums[0][0] = 1
    for i, rank in enumerate(ranks):
        for taken in range(min(size, i + 1), 0, -1):
            for total, ways in sums[taken - 1].items():
                sums[taken][total + rank] += ways
    return sums[size]


def rank_sum_p(low, high):
    """The chance of ranks as high as those of `high`, were both samples of one distribution.

    Exact; ties share their mean rank.
    """
    pooled = sorted([*low, *high])
    # Doubled, so that the mean rank of ties is whole.
    doubled = {value: 2 * pooled.index(value) + pooled.count(value) + 1 for value in set(pooled)}
    ranks = tuple(doubled[value] for value in pooled)
    observed = sum(doubled[value] for value in high)
    sums = _subset_sums(ranks, len(high))
    as_high = sum(ways for total, ways in sums.items() if total >= observed)
    return as_high / math.comb(len(pooled), len(high))


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What became of one cell's time."""

    verdict: str  # same, slower, faster or ambiguous
    change: float  # of the time ratio: 0.05 is 5% more
    p: float | None
    words: str
    before: float  # medians of the samples, less what all cells had in common
    after: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    judgements: dict  # cell -> Judgement
    common_shift: float  # of all ratios, taken out of each
    floors: dict  # "short" and "long" cells: the least change that is called, of the fresh passes


def judge(baseline, candidate, time_ns, rerun=None, min_effect=MIN_EFFECT, rerun_both=False):
    """Judges every cell that both sides timed.

    Args:
      baseline, candidate: a list of passes, each a dict {cell: sample}.
      time_ns: {cell: time}, which tells short cells from long ones.
      rerun: called with cells; gives fresh passes (of the baseline or None, of the candidate) over
        them. Without it, every second pass of each side confirms what the others found suspicious.
      min_effect: the least change that is ever called.
      rerun_both: whether rerun gives fresh passes of the baseline too, so that none of `baseline`
        need be kept for the confirmation.
    """
    cells = sorted(set().union(*baseline) & set().union(*candidate))
    center = {cell: statistics.median(_logs(baseline, cell)) for cell in cells}
    baseline_drift, baseline = _without_drift(baseline, center, cells)
    candidate_drift, candidate = _without_drift(candidate, center, cells)
    common = statistics.median(candidate_drift) - statistics.median(baseline_drift)
    floor = _Floor(_null_run(baseline, candidate, cells, time_ns), min_effect)

    screen_candidate = candidate if rerun else candidate[0::2]
    screen_baseline = baseline if rerun and rerun_both else baseline[0::2]
    suspicious = {}
    shifts = {}
    for cell in cells:
        before, after = _values(screen_baseline, cell), _values(screen_candidate, cell)
        shifts[cell] = _median(_values(candidate, cell)) - _median(_values(baseline, cell))
        if not before or not after:
            continue
        shift = _median(after) - _median(before)
        low, high = (before, after) if shift > 0 else (after, before)
        # Three samples a side or fewer cannot be that unlikely; the most unlikely must do.
        least_p = 1 / math.comb(len(low) + len(high), len(low))
        if (math.expm1(abs(shift)) >= min_effect
                and rank_sum_p(low, high) <= max(SCREEN_P, least_p)):
            suspicious[cell] = 1 if shift > 0 else -1

    judgements = {
        cell: Judgement("same", math.expm1(shifts[cell]), None, "",
                        *_ratios(center, baseline, candidate, cell)) for cell in cells}
    fresh_baseline, fresh_candidate = baseline[1::2], candidate[1::2]
    if suspicious:
        if rerun:
            again = sorted(suspicious) + _controls(cells, suspicious)
            for side, passes in zip("bc", rerun(again)):
                if passes is None:
                    continue
                _, corrected = _without_drift(passes, center,
                                              [c for c in again if c not in suspicious])
                if side == "b":
                    fresh_baseline = corrected
                else:
                    fresh_candidate = corrected
        _confirm(suspicious, fresh_baseline, fresh_candidate, floor, time_ns, judgements)
    counts = max(1, len(fresh_baseline)), max(1, len(fresh_candidate))
    return Outcome(judgements, math.expm1(common),
                   {kind: floor.of(kind, *counts) for kind in ("short", "long")})


def _confirm(suspicious, baseline, candidate, floor, time_ns, judgements):
    tested = []
    for cell, sign in suspicious.items():
        before, after = _values(baseline, cell), _values(candidate, cell)
        low, high = (before, after) if sign > 0 else (after, before)
        p = rank_sum_p(low, high) if before and after else 1.0
        tested.append((p, cell, len(before), len(after)))
    tested.sort()
    called = True
    for i, (p, cell, before_count, after_count) in enumerate(tested):
        allowed = FALSE_ALARMS / (len(tested) - i)
        called = called and p <= allowed  # Holm: after the first that is not, none is.
        before, after = _values(baseline, cell), _values(candidate, cell)
        old = judgements[cell]
        if not before or not after or 1 / math.comb(
                before_count + after_count, before_count) > allowed:
            judgements[cell] = dataclasses.replace(
                old, verdict="ambiguous",
                words=f"changed where it was first seen; {_passes(before_count, 'baseline')} and "
                      f"{_passes(after_count, 'candidate')} are too few to confirm it")
            continue
        change = math.expm1(_median(after) - _median(before))
        effect = math.expm1(abs(math.log1p(change)))
        as_suspected = (change > 0) == (suspicious[cell] > 0)
        least = floor.of(_kind(time_ns, cell), before_count, after_count)
        if called and as_suspected and effect >= least:
            verdict, words = "slower" if change > 0 else "faster", ""
        elif p <= CLEAR_P and as_suspected:
            verdict = "ambiguous"
            words = (f"confirmed, but below the {least:.1%} that this machine can tell"
                     if called else "not far enough out of the noise when run again")
        else:
            verdict, words = "same", "suspicious, and cleared when run again"
        judgements[cell] = dataclasses.replace(old, verdict=verdict, change=change, p=p,
                                               words=words)


def _passes(count, side):
    return f"{count} {side} pass{'' if count == 1 else 'es'}"


def _kind(time_ns, cell):
    return "short" if time_ns[cell] < SHORT_NS else "long"


def _logs(passes, cell):
    return [math.log(one[cell]) for one in passes if cell in one]


def _values(passes, cell):
    return [one[cell] for one in passes if cell in one]


def _median(values):
    return statistics.median(values) if values else 0.0


def _without_drift(passes, center, cells):
    """(drift of each pass, passes of log ratios less the cell's centre and the pass's drift).

    `cells` are those that the drift is taken from.
    """
    drifts, corrected = [], []
    for one in passes:
        logs = {cell: math.log(ratio) - center[cell] for cell, ratio in one.items()
                if cell in center}
        drift = _median([logs[cell] for cell in cells if cell in logs])
        drifts.append(drift)
        corrected.append({cell: value - drift for cell, value in logs.items()})
    return drifts, corrected


def _ratios(center, baseline, candidate, cell):
    return tuple(math.exp(center[cell] + _median(_values(side, cell)))
                 for side in (baseline, candidate))


def _null_run(baseline, candidate, cells, time_ns):
    """{"short" and "long" cells: how far medians of one pass a side would lie apart}.

    From each side's even passes against its odd ones: what nine in ten cells stay below.
    """
    null = {"short": [], "long": []}
    for side in (baseline, candidate):
        for cell in cells:
            even, odd = _values(side[0::2], cell), _values(side[1::2], cell)
            if even and odd:
                null[_kind(time_ns, cell)].append(
                    abs(_median(even) - _median(odd)) / _spread_of(len(even), len(odd)))
    return {kind: sorted(shifts)[int(_NULL_QUANTILE * (len(shifts) - 1))]
            if len(shifts) >= _FEWEST_NULL_SHIFTS else 0.0 for kind, shifts in null.items()}


def _spread_of(before, after):
    """How the noise of a difference of medians falls with the samples on both sides."""
    return math.sqrt(1 / before + 1 / after)


@dataclasses.dataclass(frozen=True)
class _Floor:
    """The least change that is called."""

    null: dict
    min_effect: float

    def of(self, kind, before, after):
        """For medians of that many passes."""
        return max(self.min_effect, math.expm1(self.null[kind] * _spread_of(before, after)))


def _controls(cells, suspicious):
    """Cells that nobody suspects, for the drift of a fresh pass; always the same ones."""
    others = [cell for cell in cells if cell not in suspicious]
    return sorted(random.Random(1).sample(others, min(CONTROLS, len(others))))
