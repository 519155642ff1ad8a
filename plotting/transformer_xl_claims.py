"""Verdicts and tables of the Transformer-XL family, from the rows and the predicted terms alone."""

import collections
import re

from plotting import analysis
from plotting import attention_figures
from plotting import claims
from plotting import style
from plotting import tables

FAMILY = "transformer-xl"
# The thread's peaks at inference and its models: 2132 MB dense, 3021 MB compressed.
THREAD_DENSE_MB, THREAD_COMPRESSED_MB = 2132, 3021
THREAD_RATIO = THREAD_COMPRESSED_MB / THREAD_DENSE_MB
DENSE_PARAMETERS = 151_107_538
MOST_COMPRESSED = 124_500_000  # "124 M", rounded.
THREAD_BATCH, THREAD_BUDGET_GIB = 64, 12
ORDER_RATIO = 8.1  # By arithmetic: 69,390 elements against 8,590 for each token and layer.
NEAR = 0.05
# The forms that contract one core after another, as the thread's library does (left to right).
CORE_BY_CORE = ("sequential", "sequential-l2r")

PARAMETERS, FEED_FORWARD, ATTENTION, SOFTMAX, INPUTS, NORMS = range(6)
KINDS = ("parameters and their gradients", "position-wise layers", "attention", "softmax",
         "words, memory and masks", "norms and sums")
_OF_PARAMETER = re.compile(r"^(feed-forward: )?(gradient of |sum of )*(d\()*"
                           r"(layer\.|embedding|content_bias|position_bias|cluster_|word_bias"
                           r"|part of |head's)")
_ATTENTION = ("keys", "values", "queries", "scores", "attention weights", "attended",
              "relative positions", "memory and hidden", "(attention)")
_SOFTMAX = ("logits", "log probab", "log likel", "loss", "of a cluster", "classes of", "dy")


def kind_of(term):
    """The index in KINDS of a term of the cost model."""
    if _OF_PARAMETER.match(term) and "embedded tokens" not in term:
        return PARAMETERS
    if "feed-forward: " in term or "relu" in term or "attention, normed" in term:
        return FEED_FORWARD
    if term in ("memory", "mask", "position codes", "tokens", "targets"):
        return INPUTS
    if any(words in term for words in _SOFTMAX):
        return SOFTMAX
    if any(words in term for words in _ATTENTION) or term == "attention":
        return ATTENTION
    return NORMS


def size_of(row):
    """L16-D410-.. as in the cell's name."""
    return row.cell.split("/")[2]


def layers_of(row):
    """2x5x41:10x14x15 as in the cell's name; "" for a dense network."""
    part = row.cell.split("/")[3]
    return part if ":" in part else ""


def rows_of(results):
    return [row for row in results.rows if row.family == FAMILY]


def main_rows(results):
    """The rows at the largest size."""
    rows = rows_of(results)
    if not rows:
        return []
    size = max({size_of(row) for row in rows},
               key=lambda s: (max(r.parameters or 0 for r in rows if size_of(r) == s), s))
    return [row for row in rows if size_of(row) == size]


def usual_layers(rows):
    """The factors that most rows have."""
    counts = collections.Counter(filter(None, map(layers_of, rows)))
    return max(counts, key=lambda name: (counts[name], name), default="")


def dense_of(rows, row):
    """The dense network of the same size, batch, phase and conditions; None if it has no figure."""
    for other in rows:
        if (other.baseline and other.peak_bytes and size_of(other) == size_of(row)
                and (other.batch, other.phase, other.conditions)
                == (row.batch, row.phase, row.conditions)):
            return other
    return None


def ratios(rows, phase, layers=None):
    """{(variant, rank): [(batch, measured ratio, predicted ratio, row)]}, ascending."""
    found = collections.defaultdict(list)
    for row in rows:
        dense = dense_of(rows, row)
        if (row.baseline or not row.ok or row.phase != phase or not row.peak_bytes or dense is None
                or layers not in (None, layers_of(row))):
            continue
        predicted = (row.peak_bytes_model / dense.peak_bytes_model
                     if row.peak_bytes_model and dense.peak_bytes_model else None)
        found[row.variant, row.rank].append(
            (row.batch, row.peak_bytes / dense.peak_bytes, predicted, row))
    return {key: sorted(points, key=lambda p: p[0]) for key, points in found.items()}


def terms_by_cell(results):
    """{cell: {kind: predicted bytes at the peak}}."""
    sums = {}
    for record in attention_figures.read_table(results.directory, "terms.csv"):
        kinds = sums.setdefault(record["cell"], [0] * len(KINDS))
        kinds[kind_of(record["term"])] += int(record["bytes"])
    return sums


def passes(points, ratio):
    """(largest batch measured below the ratio before it is reached, smallest at it), either None."""
    reached = next((batch for batch, value, _, _ in points if value >= ratio), None)
    below = [batch for batch, value, _, _ in points
             if value < ratio and (reached is None or batch < reached)]
    return (max(below, default=None), reached)


def _passing_words(points, ratio, words):
    below, reached = passes(points, ratio)
    if reached is None:
        return f"{words} is not reached up to B = {points[-1][0]}"
    if below is None:
        return f"{words} is passed at B = {reached} already"
    return f"{words} is passed between B = {below} and {reached}"


def judge(results):
    return (_inference(results), _order(results), _fused(results), _budget(results))


def megabytes(count):
    return f"{count / 1e6:,.0f} MB"


def _inference(results):
    rows = main_rows(results)
    matched = any(row.baseline and row.parameters == DENSE_PARAMETERS for row in rows)
    compressed = {key: points for key, points in ratios(rows, "inference",
                                                        usual_layers(rows)).items()
                  if key[0] in CORE_BY_CORE
                  and all(row.parameters <= MOST_COMPRESSED for _, _, _, row in points)}
    predicted = measured = ""
    if not matched or not compressed:
        verdict, evidence = claims.UNKNOWN, (
            "This run has no network of 151,107,538 parameters beside one whose layers are "
            "contracted core by core, at inference.")
    else:
        best = {key: max(points, key=lambda p: p[1]) for key, points in compressed.items()}
        most = max(point[1] for point in best.values())
        verdict = (claims.HOLDS if most >= THREAD_RATIO else
                   claims.CONSTANT if most > 1 else claims.FAILS)
        # The form and batch nearest the thread's ratio.
        key, point = min(((k, p) for k, points in compressed.items() for p in points),
                         key=lambda item: abs(item[1][1] - THREAD_RATIO))
        batch, ratio, model, row = point
        dense = dense_of(rows, row)
        predicted = f"{model:.3f} at B = {batch}" if model else ""
        measured = f"{ratio:.3f} at B = {batch}: {row.peak_bytes / 1e6:.0f} / " \
                   f"{dense.peak_bytes / 1e6:.0f} MB"
        sentences = [
            f"The dense network has {dense.parameters:,} parameters, the compressed one "
            f"{row.parameters:,} at r = {row.rank}; 124 M bounds r to 16. Under no_grad {key[0]} "
            f"(r = {row.rank}) peaks at {megabytes(row.peak_bytes)} at B = {batch} "
            f"({batch * row.target_len:,} tokens), dense at {megabytes(dense.peak_bytes)}: "
            f"{ratio:.3f} times, where the thread says {THREAD_RATIO:.3f} "
            f"({THREAD_COMPRESSED_MB} / {THREAD_DENSE_MB} MB)."]
        for (variant, rank), points in sorted(compressed.items()):
            if len(points) > 1:
                sentences.append(f"{variant}, r = {rank}: "
                                 + _passing_words(points, 1, "dense") + "; "
                                 + _passing_words(points, THREAD_RATIO, "the thread's ratio") + ".")
        terms = terms_by_cell(results)
        if row.cell in terms and dense.cell in terms:
            sentences.append(
                f"At that peak {megabytes(terms[row.cell][FEED_FORWARD])} are running tensors of "
                f"one position-wise layer; at the dense network's "
                f"{megabytes(terms[dense.cell][SOFTMAX])} are the softmax's. The weights saved are "
                f"{megabytes(dense.weight_bytes - row.weight_bytes)}.")
        sentences.append("The thread's configuration puts 20 sequences of 150 on each of three "
                         "GPUs; its totals were read from a driver and count more than tensors.")
        evidence = " ".join(sentences)
    return claims.Verdict(
        "C3", "The compressed Transformer-XL needs more memory at inference too, in eval and "
        "no_grad: 3021 MB against 2132 MB (151 M to 124 M parameters).", verdict, evidence,
        f"Of forms that contract core by core ({', '.join(CORE_BY_CORE)}), at the matched numbers of "
        f"parameters, peak memory under no_grad over dense. Holds: {THREAD_RATIO:.3f} or more at "
        "some batch. With a constant: above 1, never as much. Does not hold: never above 1.",
        published=f"{THREAD_RATIO:.3f} ({THREAD_COMPRESSED_MB} / {THREAD_DENSE_MB} MB)",
        predicted=predicted, measured=measured, figure="transformer-xl-batch")


def saved_elements(rows, row):
    """What a TT network holds beyond the fused one, in elements for each token and layer.

    The fused network holds nothing of its position-wise layers but their inputs. None without one.
    """
    for other in rows:
        if (other.variant == "fused" and other.held_bytes and other.phase == row.phase
                and (size_of(other), other.batch, other.conditions)
                == (size_of(row), row.batch, row.conditions)):
            per = analysis.ITEM_BYTES[row.dtype] * row.batch * row.target_len * row.layers
            return (row.held_bytes - other.held_bytes) / per
    return None


def orders(results):
    """[(row of the usual order, row of the other)] of sequential-l2r in training, by batch."""
    rows = [row for row in main_rows(results) if row.ok and row.phase == "train"
            and row.variant == "sequential-l2r" and row.held_bytes]
    usual = usual_layers(main_rows(results))
    pairs = [(a, b) for a in rows for b in rows
             if layers_of(a) == usual != layers_of(b) and (a.batch, a.rank) == (b.batch, b.rank)]
    return sorted(pairs, key=lambda pair: pair[0].batch)


def _order(results):
    rows = main_rows(results)
    published = f"{ORDER_RATIO} times (69,390 / 8,590 elements)"
    measured = predicted = ""
    pairs = [(a, b) for a, b in orders(results)
             if (saved_elements(rows, a) or 0) > 0 and (saved_elements(rows, b) or 0) > 0
             and a.parameters and a.rank == 8]
    if not pairs:
        verdict, evidence = claims.UNKNOWN, (
            "This run has no sequential-l2r with both orders of factors, beside fused, in training.")
    else:
        a, b = pairs[-1]
        first, second = saved_elements(rows, a), saved_elements(rows, b)
        ratio = first / second
        verdict = (claims.HOLDS if abs(ratio / ORDER_RATIO - 1) <= NEAR else
                   claims.CONSTANT if ratio > 1 else claims.FAILS)
        measured = f"{ratio:.2f} times ({first:,.0f} / {second:,.0f} elements)"
        if a.held_bytes_model and b.held_bytes_model:
            predicted = "the same, to the byte" if (
                a.held_bytes_model == a.held_bytes and b.held_bytes_model == b.held_bytes
            ) else f"{a.held_bytes_model / b.held_bytes_model:.2f} times of all that is held"
        evidence = (
            f"sequential-l2r, r = {a.rank}, B = {a.batch}: with {layers_of(a)} (and its mirror) the "
            f"network holds {first:,.0f} elements for each token and layer beyond its inputs, with "
            f"{layers_of(b)} {second:,.0f}; peaks of training {megabytes(a.peak_bytes)} and "
            f"{megabytes(b.peak_bytes)}. Both count the inputs' permuted copies. The order that is "
            "good from left to right is bad from right to left, and the other way round.")
    return claims.Verdict(
        "C3a", "With the factors of both sides in descending order the same network saves 8.1 times "
        "fewer elements.", verdict, evidence,
        f"Held bytes of training beyond the fused network's. Holds: within {NEAR:.0%} of "
        f"{ORDER_RATIO}. With a constant: more than 1, otherwise. Does not hold: not more than 1.",
        published=published, predicted=predicted, measured=measured,
        figure="transformer-xl-order")


def _fused(results):
    rows = main_rows(results)
    found = [(phase, point) for phase in ("inference", "train")
             for (variant, _), points in ratios(rows, phase).items() if variant == "fused"
             for point in points]
    phases = {phase for phase, _ in found}
    measured = ""
    if phases != {"inference", "train"}:
        verdict, evidence = claims.UNKNOWN, "This run has no fused network in both phases."
    else:
        least = min(point[1] for _, point in found)
        most = max(point[1] for _, point in found)
        verdict = claims.HOLDS if most <= 1 else claims.FAILS
        measured = f"{least:.3f} to {most:.3f} of dense"
        evidence = (f"In {claims.plural(len(found), 'case')}, batches "
                    f"{', '.join(map(str, sorted({point[0] for _, point in found})))}, the peak is "
                    f"{least:.3f} to {most:.3f} of the dense network's. ")
        timed = [row for row in rows_of(results)
                 if row.variant == "fused" and row.ok and row.time_ratio_to_dense]
        if timed:
            evidence += "Time over dense: " + "; ".join(
                f"{row.time_ratio_to_dense:.2f} in {analysis.phase_words(row.phase)} "
                f"({row.layers} layers, B = {row.batch})"
                for row in sorted(timed, key=lambda r: (r.phase, r.batch, r.rank or 0))) + "."
    return claims.Verdict(
        "C3b", "The fused network's peak is at or below the dense one's at every batch, in "
        "inference and in training.", verdict, evidence,
        "Holds: so at every batch and rank measured at the largest size. Does not hold: otherwise.",
        published="none: the suite's own aim", predicted="at most 1", measured=measured,
        figure="transformer-xl-batch")


def _budget(results):
    rows = [row for row in main_rows(results)
            if row.phase == "train" and row.batch == THREAD_BATCH]
    terms = terms_by_cell(results)
    need = {row.cell: sum(terms[row.cell]) for row in rows if row.cell in terms}
    budget = THREAD_BUDGET_GIB * 2 ** 30
    refused = [row for row in rows if row.status == "oom" and row.variant in CORE_BY_CORE]
    fits = [row for row in rows if row.variant == "fused"]
    predicted = measured = ""
    sequential = next((row for row in rows if row.variant in CORE_BY_CORE), None)
    if sequential is not None and sequential.cell in need:
        predicted = f"{style.bytes_text(need[sequential.cell])} for {sequential.variant}"
    if not refused:
        verdict, evidence = claims.UNKNOWN, (
            "This run has no network contracted core by core that ran out of a budget of 12 GiB at "
            "batch 64" + (f"; predicted to need {predicted}." if predicted else "."))
    else:
        row = refused[0]
        verdict = claims.HOLDS
        measured = "out of memory"
        evidence = (f"{row.variant}, r = {row.rank}, batch {row.batch} of {row.target_len} tokens: "
                    f"{row.reason}. ")
        if row.cell in need:
            if need[row.cell] <= budget:
                verdict = claims.FAILS
            evidence += f"It is predicted to need {style.bytes_text(need[row.cell])}. "
        for other in fits:
            if other.ok:
                evidence += (f"fused trains within it: {style.bytes_text(other.peak_bytes)} "
                             "measured.")
                measured += f"; fused {style.bytes_text(other.peak_bytes)}"
            elif other.cell in need:
                evidence += (f"fused was not run here and is predicted to need "
                             f"{style.bytes_text(need[other.cell])}.")
    return claims.Verdict(
        "C3c", "The compressed network could not even be trained: batch 64, sequences of 150, GPUs "
        "of 12 GB.", verdict, evidence,
        "Holds: at batch 64 a form that contracts core by core runs out of a budget of 12 GiB. The "
        "thread spread its batch over four such GPUs; here one has it all. Does not hold: it would "
        "fit.", published="could not be trained", predicted=predicted, measured=measured,
        figure="transformer-xl-bytes")


def build(results):
    return [table for table in (_verdicts(results), _peaks(results), _account(results))
            if table.rows]


def _verdicts(results):
    return tables.Table(
        "claims", "Claims and verdicts", "Computed from the rows of this run.",
        ("id", "claim", "published", "predicted", "measured", "verdict", "evidence"),
        tuple((v.id, v.claim, v.published, v.predicted, v.measured, v.verdict, v.evidence)
              for v in judge(results)))


def _peaks(results):
    terms = terms_by_cell(results)
    lines = []
    for row in sorted(rows_of(results), key=lambda r: (
            size_of(r), r.phase, r.batch, r.variant, layers_of(r), r.rank or 0)):
        dense = dense_of(results.rows, row)
        predicted = row.peak_bytes_model or (sum(terms[row.cell]) if row.cell in terms else None)
        lines.append((
            size_of(row), layers_of(row), row.variant, str(row.rank or ""), str(row.batch),
            analysis.phase_words(row.phase),
            f"{predicted / 1e6:,.1f}" if predicted else "",
            f"{row.peak_bytes / 1e6:,.1f}" if row.peak_bytes else row.status,
            f"{row.peak_bytes / dense.peak_bytes:.3f}" if row.peak_bytes and dense else "",
            f"{row.time_ns / 1e6:,.0f}" if row.time_ns else "",
            f"{row.time_ratio_to_dense:.2f}" if row.time_ratio_to_dense else ""))
    return tables.Table(
        "networks", "Every network: predicted and measured",
        "Peak bytes over the whole phase, parameters included, by the cost model and measured.",
        ("size", "layers", "variant", "r", "B", "phase", "predicted MB", "measured MB", "over dense",
         "ms", "time over dense"), tuple(lines),
        ("r", "B", "predicted MB", "measured MB", "over dense", "ms", "time over dense"))


def _account(results):
    """The thread's arithmetic of activations at the largest batch there is."""
    terms = terms_by_cell(results)
    lines = []
    for row in sorted(main_rows(results), key=lambda r: (r.batch, r.variant, r.rank or 0)):
        if row.phase != "train" or row.cell not in terms or row.variant not in (
                "dense", "fused", *CORE_BY_CORE):
            continue
        elements = 2510 if row.variant in ("dense", "fused") else _elements(row)
        if row.hidden != 410 or elements is None:
            continue
        tokens = row.batch * row.target_len
        arithmetic = 4 * elements * row.layers * tokens
        held = terms[row.cell][FEED_FORWARD]
        lines.append((row.variant, layers_of(row), str(row.rank or ""), f"{tokens:,}",
                      f"{elements:,}", f"{arithmetic / 1e9:.2f}",
                      f"{held / 1e9:.2f}" if held > arithmetic / 2 else "gone at the peak",
                      f"{sum(terms[row.cell]) / 1e9:.2f}",
                      f"{row.peak_bytes / 1e9:.2f}" if row.peak_bytes else row.status))
    return tables.Table(
        "activations", "Activations of the position-wise layers in training",
        "By the thread's arithmetic, elements for each token and layer, times layers and tokens; by "
        "the cost model, of the position-wise layers at the peak; and the whole peak, in GB.",
        ("variant", "layers", "r", "tokens", "elements", "arithmetic GB", "model GB",
         "whole peak, model GB", "whole peak, measured GB"), tuple(lines),
        ("r", "tokens", "elements", "arithmetic GB", "model GB", "whole peak, model GB",
         "whole peak, measured GB"))


def _elements(row):
    """Inputs and running tensors of both layers when contracted core by core, for each token.

    From left to right the tensor that core k leaves has r_k n_{k+1} .. n_K m_1 .. m_k elements; from
    right to left it is the mirror image's.
    """
    text = layers_of(row)
    if not text or row.rank is None:
        return None
    up, _, down = text.partition("+")
    if not down:
        down = ":".join(reversed(up.split(":")))
    total = 0
    for layer in (up, down):
        n, m = ([int(mode) for mode in side.split("x")] for side in layer.split(":"))
        if row.variant == "sequential":
            n, m = n[::-1], m[::-1]
        size = _product(n)
        total += size
        for k in range(len(n) - 1):
            total += row.rank * _product(n[k + 1:]) * _product(m[:k + 1])
    return total


def _product(values):
    result = 1
    for value in values:
        result *= value
    return result
