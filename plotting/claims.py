"""Verdicts on the threads' claims, computed from the rows and nothing else.

Each verdict carries the rule it follows and the figures behind it; a claim
whose rows are not in this run is "not measured here", never guessed.
"""

import collections
import dataclasses
import fractions
import statistics

from plotting import analysis
from plotting import style

HOLDS = "holds"
CONSTANT = "holds with a constant"
FAILS = "does not hold"
UNKNOWN = "not measured here"

SMALL_SHARE = 1 / 20


@dataclasses.dataclass(frozen=True)
class Verdict:
    id: str
    claim: str
    verdict: str
    evidence: str
    rule: str
    # In short, with units, for the table of all claims; "" where there is none.
    published: str = ""  # What the thread says.
    predicted: str = ""  # By the cost model or by arithmetic.
    measured: str = ""
    figure: str = ""  # How the stem of the figure begins that shows it.


def judge(results):
    return (formulas(results), law(results), naive(results), einsum(results),
            cores(results), fused_memory(results), fused_time(results))


def plural(count, word):
    if count != 1:
        word = word[:-1] + "ies" if word.endswith("y") else (
            word + "es" if word.endswith(("x", "s", "ch")) else word + "s")
    return f"{count} {word}"


# C1

@dataclasses.dataclass(frozen=True)
class Held:
    """What a variant holds for its backward, as a B d^3 + b, over all (d, r)."""

    variant: str
    series: int
    form: str  # a, in words: "2r + 1", "1", "not linear in B", "varies"
    offset: tuple  # least and most b, in bytes
    over_rank: fractions.Fraction | None  # a - 2r where that is one number


def weights(results):
    """(rows equal to the thread's weight formulas, rows unequal), cubic K = 3."""
    equal, unequal = 0, []
    for row in results.rows:
        item = analysis.ITEM_BYTES.get(row.dtype)
        cores, d = analysis.cube(row) or (None, None)
        if not row.ok or cores != 3 or None in (row.weight_bytes, item):
            continue
        if analysis.is_ranked(row) and row.rank is None:
            continue
        count = d ** 2 * (row.rank ** 2 + 2 * row.rank) if row.rank else d ** 6
        if row.weight_bytes == count * item:
            equal += 1
        else:
            unequal.append(row)
    return equal, unequal


_CURVED = "not linear in B"


def held(results):
    """One Held for each variant with two batches or more, cubic K = 3, training."""
    series = collections.defaultdict(dict)
    for row in results.rows:
        cores, d = analysis.cube(row) or (None, None)
        if (row.ok and row.variant != analysis.PICKER and row.phase == "train" and cores == 3
                and row.held_bytes is not None and row.dtype in analysis.ITEM_BYTES
                and (row.rank or not analysis.is_ranked(row))):
            series[row.variant, d, row.rank, row.dtype][row.batch] = row.held_bytes
    slopes = collections.defaultdict(list)
    for (variant, d, rank, dtype), points in sorted(
            series.items(), key=lambda item: tuple(map(str, item[0]))):
        batches = sorted(points)
        if len(batches) < 2:
            continue
        rise = fractions.Fraction(points[batches[-1]] - points[batches[0]],
                                  batches[-1] - batches[0])
        offset = points[batches[0]] - rise * batches[0]
        straight = all(points[b] == rise * b + offset for b in batches)
        slopes[variant].append((rank, rise / (d ** 3 * analysis.ITEM_BYTES[dtype]), offset,
                                straight))
    found = []
    for variant, lines in slopes.items():
        over = {slope - 2 * (rank or 0) for rank, slope, _, _ in lines}
        flat = {slope for _, slope, _, _ in lines}
        offsets = [offset for _, _, offset, _ in lines]
        over_rank = None
        if not all(straight for _, _, _, straight in lines):
            form = _CURVED
        elif len(flat) == 1 and (len({rank for rank, *_ in lines}) > 1
                                 or lines[0][0] is None or flat == {1}):
            form = _number(next(iter(flat)))
        elif len(over) == 1:
            over_rank = next(iter(over))
            form = f"2r + {_number(over_rank)}"
        else:
            form = f"{_number(min(flat))} to {_number(max(flat))}, varies"
        found.append(Held(variant, len(lines), form,
                          (int(min(offsets)), int(max(offsets))), over_rank))
    return found


def _number(value):
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.4g}"


def formulas(results):
    equal, unequal = weights(results)
    forms = held(results)
    lawful = [h for h in forms if h.over_rank is not None]
    dense = {row.variant for row in results.rows if row.baseline}
    dense_wrong = [h for h in forms if h.variant in dense and (h.form != "1" or any(h.offset))]
    if not equal + len(unequal) or not any(h.variant not in dense for h in forms):
        verdict, evidence = UNKNOWN, "No training rows of three cubic cores at two batches."
    else:
        evidence = (f"Weights equal the formulas in {equal} of "
                    f"{plural(equal + len(unequal), 'row')}. Held per row of x, in "
                    "units of d³: " + "; ".join(
                        f"{h.variant} {h.form}" + (" plus a constant" if any(h.offset)
                                                   and h.form != _CURVED else "")
                        for h in forms) + ".")
        if unequal or dense_wrong or not lawful:
            verdict = FAILS
        elif all(h.over_rank == 1 and not any(h.offset) for h in lawful):
            verdict = HOLDS
        else:
            verdict = CONSTANT
    return Verdict(
        "C1", "Dense: weights d⁶, activations Bd³. TT with 3 cores: weights d²(r² + 2r), "
        "activations Bd³(2r + 1).", verdict, evidence,
        "Holds: weights equal the formulas to the byte in every row, the dense layer holds "
        "Bd³, and every variant that keeps its intermediates holds exactly Bd³(2r + 1). With "
        "a constant: such variants hold Bd³(2r + c) plus bytes that do not depend on B. Does "
        "not hold: a weight differs, or no variant is of that form.", **_held_figures(results))


def _held_figures(results):
    """Of the training row of the plain sequential form, three cubic cores, that holds most."""
    rows = [row for row in results.rows
            if row.ok and row.variant == "sequential" and row.phase == "train" and row.rank
            and (analysis.cube(row) or (0,))[0] == 3
            and None not in (row.held_bytes, row.held_bytes_model)]
    if not rows:
        return {}
    row = max(rows, key=lambda row: (row.held_bytes, row.cell))
    claimed = (2 * row.rank + 1) * row.batch * row.d ** 3 * analysis.ITEM_BYTES[row.dtype]
    return {"published": f"Bd³(2r + 1) = {style.bytes_text(claimed)} (sequential, d = {row.d}, "
                         f"r = {row.rank}, B = {row.batch})",
            "predicted": style.bytes_text(row.held_bytes_model),
            "measured": style.bytes_text(row.held_bytes), "figure": "memory-held-train-k3"}


# C2

@dataclasses.dataclass(frozen=True)
class Constant:
    """k in 2Br = k d^3 for one (variant, phase, metric), cubic K = 3."""

    variant: str
    phase: str
    metric: str
    ks: tuple  # at exact crossovers, all (d, r)
    small_ks: tuple  # those where TT has few parameters, which the verdict uses
    ranks: tuple  # of the exact crossovers
    verdicts: dict  # verdict of a crossing -> count
    verdict: str

    @property
    def median(self):
        return statistics.median(self.small_ks or self.ks) if self.ks else None


def constants(results):
    groups = collections.defaultdict(list)
    for crossing in analysis.crossings(results):
        if crossing.cores == 3 and crossing.d and crossing.rank:
            groups[crossing.metric, crossing.phase, crossing.variant].append(crossing)
    phase = {name: i for i, name in enumerate(analysis.PHASES)}
    order = sorted(groups, key=lambda g: (g[0] != "held", phase.get(g[1], 9), g[1], g[2]))
    return [_constant(place, groups[place]) for place in order]


def _constant(place, crossings):
    metric, phase, variant = place
    small = [c for c in crossings
             if analysis.parameter_share(c.d, c.rank) <= SMALL_SHARE]
    ks = tuple(c.k for c in crossings if c.k is not None)
    small_ks = tuple(c.k for c in small if c.k is not None)
    crossed = [c for c in small if c.verdict in ("measured", "bracketed") and c.high]
    kinds = dict(sorted(collections.Counter(c.verdict for c in crossings).items()))
    if not small:
        verdict = UNKNOWN
    elif not crossed:
        only = {c.verdict for c in small}
        verdict = {"never": "never more", "always": "always more",
                   "beyond": "no crossover in range", "unmeasured": "not measured"}.get(
                       next(iter(only)) if len(only) == 1 else "", "no crossover")
    elif all(_at_claim(c) for c in crossed):
        verdict = HOLDS
    else:
        spans = [(2 * (c.high if c.verdict == "measured" else c.low or 1) * c.rank
                  / c.d ** 3, 2 * c.high * c.rank / c.d ** 3) for c in crossed]
        least, most = min(high for _, high in spans), max(low for low, _ in spans)
        verdict = CONSTANT if most <= 1.5 * least else FAILS
    ranks = tuple(sorted({c.rank for c in crossings if c.k is not None}))
    return Constant(variant, phase, metric, ks, small_ks, ranks, kinds, verdict)


def _at_claim(crossing):
    claim = analysis.claim_batch(crossing.d, crossing.rank)
    slack = max(1, 0.1 * claim)
    low = crossing.high if crossing.verdict == "measured" else (crossing.low or 0) + 1
    return low - slack <= claim <= crossing.high + slack


def law(results):
    groups = [c for c in constants(results) if c.verdict != UNKNOWN]
    crossing = [c for c in groups if c.verdict in (HOLDS, CONSTANT, FAILS)]
    if not groups:
        verdict, evidence = UNKNOWN, "No crossovers of three cubic cores."
    elif not any(c.verdict != FAILS for c in crossing):
        verdict = FAILS
        evidence = (f"None of {plural(len(groups), 'case')} crosses where 2Br is a "
                    "constant times d³.")
    else:
        verdict = HOLDS if all(c.verdict == HOLDS for c in crossing) else CONSTANT
        parts = []
        for metric, phase in dict.fromkeys((c.metric, c.phase) for c in crossing):
            these = [c for c in crossing if (c.metric, c.phase) == (metric, phase)]
            texts = [f"{c.variant} {c.median:.2f}" if c.median is not None
                     else f"{c.variant} between cells" for c in these
                     if c.verdict != FAILS]
            if texts:
                parts.append(f"{analysis.phase_words(phase)}, {metric}: "
                             + ", ".join(texts))
        evidence = "Median k: " + "; ".join(parts) + "."
        for word, label in (("never more", "Never more"), ("always more", "Always more"),
                            (FAILS, "k not constant")):
            names = []
            for variant in sorted({c.variant for c in groups if c.verdict == word}):
                mine = [c for c in groups if c.variant == variant]
                where = [f"{analysis.phase_words(c.phase)} {c.metric}" for c in mine
                         if c.verdict == word]
                names.append(variant if len(where) == len(mine)
                             else f"{variant} ({', '.join(where)})")
            if names:
                evidence += f" {label}: {'; '.join(names)}."
    return Verdict(
        "C2", "TT uses more memory than dense when 2Br > d³.", verdict, evidence,
        "Looked at where TT has at most 1/20 of the dense parameters; k = 2Br/d³ at the "
        "measured crossover. Holds: every variant, phase and metric that crosses does so "
        "within 10% (or one row of x) of the thread's B. With a constant: its k differs from "
        "1 but stays within a factor of 1.5 over all (d, r), in at least one case; cases "
        "where it does not are named. Does not hold: no case has such a k.",
        **_law_figures(results))


def _law_figures(results):
    """Of the sequential form in training, at the largest d that was measured, its middle rank."""
    found = {(c.d, c.rank, c.metric): c for c in analysis.crossings(results)
             if c.variant == "sequential" and c.phase == "train" and c.verdict == "measured"
             and c.cores == 3 and c.d and c.rank and c.dtype == "float32"}
    places = sorted({place[:2] for place in found})
    if not places:
        return {}
    largest = [place for place in places if place[0] == places[-1][0]]
    d, rank = largest[len(largest) // 2]
    both = [found[d, rank, metric] for metric in ("held", "peak") if (d, rank, metric) in found]

    def words(batch):
        return ", ".join(f"{batch(c)} ({c.metric})" for c in both)
    return {"published": f"B = {analysis.claim_batch(d, rank)} (d = {d}, r = {rank})",
            "predicted": f"B = {words(lambda c: c.model)}",
            "measured": f"B = {words(lambda c: c.high)}", "figure": "law-k3"}


def _shorten(names, most=6):
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


# C4

@dataclasses.dataclass(frozen=True)
class NaiveCase:
    """One configuration with the naive form beside the others; peak bytes."""

    layer: str
    ranks: str
    batch: int
    phase: str
    conditions: tuple
    dense: int
    peaks: dict  # variant -> peak bytes, naive among them
    models: dict  # the same, by the cost model

    @property
    def against_dense(self):
        return self.peaks["naive"] / self.dense

    def saved(self, variant):
        """How many times the naive form's peak the other needs."""
        return self.peaks[variant] / self.peaks["naive"] if variant in self.peaks else None


NAIVE_RIVALS = ("sequential", "einsum")


def naive_cases(results):
    cases = {}
    for row in results.rows:
        base = results.baseline(row)
        if (row.ok and row.variant in ("naive", *NAIVE_RIVALS) and row.peak_bytes
                and base is not None and base.ok and base.peak_bytes):
            place = (row.shape, row.ranks, row.batch, row.phase, row.conditions)
            case = cases.setdefault(place, NaiveCase(
                analysis.shape_words(row), row.ranks, row.batch, row.phase,
                row.conditions, base.peak_bytes, {}, {}))
            case.peaks[row.variant] = row.peak_bytes
            case.models[row.variant] = row.peak_bytes_model
    return [case for case in cases.values()
            if "naive" in case.peaks and len(case.peaks) > 1]


def naive(results):
    cases = naive_cases(results)
    training = [case for case in cases if case.phase != "inference"]
    if not training:
        verdict, evidence = UNKNOWN, ("No training rows with naive, dense and sequential "
                                      "or einsum at the same configuration.")
    else:
        ratios = [case.against_dense for case in training]
        verdict = (HOLDS if max(ratios) <= 1.25 else
                   CONSTANT if max(ratios) <= 3 else FAILS)
        evidence = (f"In {plural(len(training), 'training cell')} naive peaks at "
                    f"{style.ratio_text(min(ratios))} to {style.ratio_text(max(ratios))} "
                    "times the dense layer.")
        for rival in NAIVE_RIVALS:
            known = [(case.saved(rival), case) for case in training if case.saved(rival)]
            if known:
                most, where = max(known, key=lambda pair: pair[0])
                loses = sum(ratio < 1 for ratio, _ in known)
                evidence += (f" {rival} needs up to {style.ratio_text(most)} times naive "
                             f"({where.layer}, ranks {where.ranks}, B = {where.batch}), "
                             f"and less than naive in {loses} of {len(known)}.")
        inference = [case.against_dense for case in cases if case.phase == "inference"]
        if inference:
            evidence += (f" At inference naive peaks at {style.ratio_text(min(inference))}"
                         f" to {style.ratio_text(max(inference))} times dense.")
    return Verdict(
        "C4", "Rebuilding the full matrix (naive) brings training memory back to about the "
        "dense layer's.", verdict, evidence,
        "Holds: naive's peak is at most 1.25 times dense's in every training cell. With a "
        "constant: at most 3 times. Does not hold: more.", **_naive_figures(training))


def _naive_figures(training):
    """Of the training cell where rebuilding saves most beside the sequential form."""
    known = [case for case in training
             if case.saved("sequential") and None not in case.models.values()]
    if not known:
        return {}
    case = max(known, key=lambda case: case.saved("sequential"))

    def words(peaks):
        before, after = peaks["sequential"], peaks["naive"]
        return (f"{style.bytes_text(before)} to {style.bytes_text(after)} "
                f"({after / before:.2f})")
    return {"published": "7700 to 1500 MB (0.19), layer and batch unstated",
            "predicted": f"{words(case.models)}: {case.layer}, ranks {case.ranks}, "
                         f"B = {case.batch}",
            "measured": words(case.peaks), "figure": "crossover-map"}


# C5

def einsum_cases(results):
    """{(variant, algorithm, phase): [(row, peak ratio)]} of the einsum variants."""
    groups = collections.defaultdict(list)
    for row in results.rows:
        ratio = results.peak_ratio(row)
        if row.variant.startswith("einsum") and ratio is not None:
            groups[row.variant, row.algorithm, row.phase].append((row, ratio))
    return dict(sorted(groups.items()))


def einsum(results):
    cells = [(row, ratio) for group in einsum_cases(results).values()
             for row, ratio in group
             if row.phase != "inference" and row.d and row.rank and row.cores == 3]
    beyond = [(2 * row.batch * row.rank / row.d ** 3, row, ratio) for row, ratio in cells]
    beyond = [cell for cell in beyond if cell[0] > 1]
    if not beyond:
        verdict, evidence = UNKNOWN, "No einsum training rows beyond 2Br = d³."
        numbers = {}
    else:
        more = sum(ratio > 1 for _, _, ratio in beyond)
        least = max((k for k, _, ratio in beyond if ratio <= 1), default=None)
        further = least is not None and any(k > least for k, _, _ in beyond)
        if least is None:
            verdict = HOLDS
        else:
            verdict = CONSTANT if further and least <= 4 else FAILS
        worst, row = max(((ratio, row) for _, row, ratio in beyond),
                         key=lambda pair: pair[0])
        orders = sorted({row.variant for _, row, _ in beyond})
        evidence = (f"{' and '.join(orders)}: more than dense in {more} of "
                    f"{plural(len(beyond), 'training cell')} beyond 2Br = d³, up to "
                    f"{style.ratio_text(worst)} times ({row.variant}, d = {row.d}, "
                    f"r = {row.rank}, B = {row.batch}).")
        if verdict == CONSTANT:
            evidence += f" In all of those beyond 2Br = {least:.2f} d³."
        model, dense = row.peak_bytes_model, results.baseline(row).peak_bytes_model
        numbers = {
            "published": "high, without a figure",
            "predicted": f"{style.ratio_text(model / dense)} times dense" if model and dense
                         else "",
            "measured": f"{style.ratio_text(worst)} times dense ({row.variant}, d = {row.d}, "
                        f"r = {row.rank}, B = {row.batch})", "figure": "crossover-map"}
    return Verdict(
        "C5", "A single einsum over all cores also has high memory.", verdict, evidence,
        "Looked at training cells of three cubic cores with 2Br > d³, both operand orders. "
        "Holds: all of them peak above dense. With a constant: all do beyond 2Br > k d³ for "
        "some k of at most 4. Does not hold: otherwise.", **numbers)


# C6

def many_cores(results):
    """{(layer, ranks, variant): rows} with more than three cores."""
    groups = collections.defaultdict(list)
    for row in results.rows:
        if (row.cores or 0) > 3 and analysis.is_ranked(row):
            groups[row.cores, analysis.shape_words(row), row.ranks, row.variant].append(row)
    return dict(sorted(groups.items()))


def cores(results):
    groups = many_cores(results)
    rows = [row for place, group in groups.items() for row in group
            if place[3] == "naive" and row.status != "skipped"]
    bad = [row for row in rows if row.status in ("wrong", "crashed")]
    good = [row for row in rows if row.ok]
    errors = [row.max_relative_error for row in good if row.max_relative_error is not None]
    if not good and not bad:
        verdict, evidence = UNKNOWN, "No naive rows with more than three cores."
    else:
        verdict = FAILS if bad else HOLDS
        others = sorted({place[3] for place, group in groups.items()
                         if any(row.ok for row in group)} - {"naive"})
        layers = sorted({(place[1], place[2]) for place in groups})
        evidence = (f"naive is right in {len(good)} of {plural(len(rows), 'cell')} with "
                    f"{' and '.join(sorted({str(p[0]) for p in groups}))} cores "
                    f"({_shorten([f'{shape}, ranks {ranks}' for shape, ranks in layers], 3)})"
                    + (f"; so are {', '.join(others)}." if others else "."))
    return Verdict(
        "C6", "naive for more than 3 cores.", verdict, evidence,
        "Holds: there are naive cells with K > 3, each checked against the float64 oracle, "
        "and none is wrong or crashed. Does not hold: one is.",
        published="naive for three cores alone" if rows else "",
        predicted="equal to the oracle, to rounding" if rows else "",
        measured=f"largest error {max(errors):.1e}" if errors else "",
        figure="layers-peak" if rows else "")


# What the suite claims itself.

KERNELS = ("fused", "fused-panel")


def fused_memory(results):
    pairs = []
    for row in results.rows:
        base = results.baseline(row)
        if (row.ok and row.variant == "fused" and base is not None and base.ok
                and None not in (row.peak_bytes, row.peak_bytes_model, base.peak_bytes,
                                 row.parameters, base.parameters)
                and row.phase in ("inference", "train")
                and 2 * row.parameters <= base.parameters):
            pairs.append((row.peak_bytes / base.peak_bytes, row, base))
    numbers = {}
    if not pairs:
        verdict, evidence = UNKNOWN, "No rows of fused beside dense with half of its parameters."
    else:
        above = [pair for pair in pairs if pair[0] > 1]
        verdict = FAILS if above else HOLDS
        worst, row, base = max(pairs, key=lambda pair: (pair[0], pair[1].cell))
        evidence = (f"fused needs more than dense in {len(above)} of "
                    f"{plural(len(pairs), 'cell')}; at most {worst:.2f} times as much "
                    f"({analysis.shape_words(row)}, ranks {row.ranks}, B = {row.batch}, "
                    f"{analysis.phase_words(row.phase)}).")
        numbers = {"published": "new here",
                   "predicted": f"at most {row.peak_bytes_model / base.peak_bytes:.2f} times dense",
                   "measured": f"at most {worst:.2f} times dense, {plural(len(pairs), 'cell')}",
                   "figure": "crossover-map-d16"}
    return Verdict(
        "fused, memory", "A kernel that keeps only x and the cores never needs more memory than "
        "dense.", verdict, evidence,
        "Looked at inference and training wherever the cores have at most half of the dense "
        "parameters. Holds: fused peaks at or below dense in all of them. Does not hold: "
        "otherwise.", **numbers)


def fused_time(results):
    """Where a fused kernel is the fastest of all variants that were timed, or within a tie."""
    cells = collections.defaultdict(list)
    dense = collections.defaultdict(list)
    for row in results.rows:
        if row.ok and row.time_ns and row.variant != analysis.PICKER:
            place = (row.shape, row.batch, row.phase, row.conditions)
            if analysis.is_ranked(row):
                cells[place, row.ranks].append(row)
            else:
                dense[place].append(row)
    wins, losses = [], []
    for (place, _), rows in cells.items():
        ours = [row for row in rows if row.variant in KERNELS]
        others = [row for row in [*rows, *dense[place]] if row.variant not in KERNELS]
        if ours and others:
            mine = min(ours, key=lambda row: row.time_ns)
            best = min(others, key=lambda row: row.time_ns)
            ratio = mine.time_ns / best.time_ns
            (wins if ratio <= analysis.TIE else losses).append((ratio, mine, best))
    numbers = {}
    count = len(wins) + len(losses)
    if not count:
        verdict, evidence = UNKNOWN, "No times of a fused kernel beside another variant."
    else:
        verdict = HOLDS if not losses else CONSTANT if len(wins) > len(losses) else FAILS
        evidence = (f"A fused kernel is fastest, or within {analysis.TIE - 1:.0%}, in {len(wins)} "
                    f"of {plural(count, 'configuration')}, dense included.")
        if losses:
            worst, mine, best = max(losses, key=lambda loss: loss[0])
            beaten = collections.Counter(loss[2].variant for loss in losses)
            evidence += (" It loses to " + ", ".join(
                f"{name} ({times})" for name, times in sorted(
                    beaten.items(), key=lambda item: (-item[1], item[0])))
                + f"; at worst it takes {style.ratio_text(worst)} times as long "
                f"({analysis.shape_words(mine)}, ranks {mine.ranks}, B = {mine.batch}, "
                f"{analysis.phase_words(mine.phase)}, beside {best.variant}).")
        numbers = {"published": "new here",
                   "predicted": "where r² + 2r is below d²",
                   "measured": f"{len(wins)} of {plural(count, 'configuration')}",
                   "figure": "winner-d16"}
    return Verdict(
        "fused, time", "Such a kernel is also the fastest way to compute the layer.",
        verdict, evidence,
        f"Times of one run, medians, within {analysis.TIE - 1:.0%} counts as a tie; auto, which "
        "picks another variant, is no contestant. Holds: one of the two fused kernels is fastest "
        "in every configuration. With a constant: in more than half. Does not hold: otherwise.",
        **numbers)
