"""Draws //experiments:real_weights: verdicts, plots, tables and report of a results directory.

    bazel run //plotting:real_weights -- results/runs/X

matrices.csv has the error of each feed-forward matrix against rank, embeddings.csv that of the
sentence embeddings, passes.csv bytes and time of a pass of the whole encoder, checks.csv how far
the encoder is from what it should be.
"""

import collections
import html
import os
import statistics
import sys

from plotting import claims
from plotting import real_weights_figures as figures
from plotting import report
from plotting import style
from plotting import tables
from plotting.real_weights_rows import load

# Cosine and rank correlation with the original's that count as little loss; the share of bytes of a
# compression worth the name; and the one from which on a pass is looked at.
LITTLE, HALF = 0.99, 0.5
LEAST_SHARE = 0.02  # A train of fewer bytes is compared with no decomposition of rank 1.

_SECTIONS = (("matrices", "What is lost of a matrix"),
             ("embeddings", "What is lost of the embeddings"),
             ("passes", "Bytes and time of the whole encoder"))


def judge(directory):
    run = load(directory)
    return (little_loss(run), better_than_svd(run), leaner_and_faster(run))


# W1

def little_loss(run):
    rows = [r for r in run.embeddings if r.compressed == "all" and r.method == "tt"
            and r.ratio_to_dense < 1]
    good = [r for r in rows if min(r.mean_cosine, r.spearman) >= LITTLE]
    measured = ""
    if not rows:
        verdict, evidence = claims.UNKNOWN, "No tensor train of all matrices smaller than they are."
    else:
        least = min((r.ratio_to_dense for r in good), default=None)
        verdict = (claims.FAILS if least is None else
                   claims.HOLDS if least <= HALF else claims.CONSTANT)
        half = max((r for r in rows if r.ratio_to_dense <= HALF), default=None,
                   key=lambda r: r.mean_cosine)
        best = max(rows, key=lambda r: r.mean_cosine)
        evidence = (f"Of {claims.plural(len(rows), 'setting')} with all feed-forward matrices as "
                    "tensor trains smaller than they are, ")
        if least is None:
            evidence += f"none keeps mean cosine and rank correlation at {LITTLE}. "
        else:
            evidence += f"the smallest that keeps both at {LITTLE} has {least:.0%} of the bytes. "
        if half:
            evidence += ("At half of the bytes or less the best mean cosine is "
                         f"{half.mean_cosine:.2f}, "
                         f"rank correlation {half.spearman:.2f} ({setting_words(half)}); ")
            measured = f"cosine {half.mean_cosine:.2f} at {half.ratio_to_dense:.0%} of the bytes"
        evidence += (f"the best of all is {best.mean_cosine:.2f}, at {best.ratio_to_dense:.2%} of "
                     f"the bytes ({setting_words(best)}).")
        spectrum = _half_error(run)
        if spectrum is not None:
            evidence += (" The matrices have no small part to leave out: even the best product of "
                         f"two factors of half the bytes is off by {spectrum:.0%} of a matrix "
                         "(median).")
    return claims.Verdict(
        "W1", "The fully connected layers of a trained network can be replaced by tensor trains, "
        "by TT-SVD alone, at little loss.", verdict, evidence,
        f"Holds: with all feed-forward matrices at half of their bytes or less, the embeddings' "
        f"mean cosine with the original's and Spearman's correlation of pairwise similarities are "
        f"both at least {LITTLE}. With a constant: at more than half, but fewer bytes than dense. "
        "Does not hold: at none. Nothing is trained here after the decomposition; Novikov et al. "
        "train the cores.",
        "layers up to 200,000 times smaller, trained as trains (Novikov et al. 2015)", "",
        measured, "weights-embeddings")


def setting_words(row):
    if row.method == "svd":
        return f"truncated SVD, rank {row.rank}"
    return f"{row.cores} cores, rank {row.rank}"


def _half_error(run):
    """Median error of the truncated SVD at the row nearest below half of the bytes."""
    rows = [r for r in run.matrices if r.method == "svd" and r.ratio_to_dense <= HALF]
    most = max((r.rank for r in rows), default=None)
    return statistics.median(r.relative_error for r in rows if r.rank == most) if rows else None


# W2

def better_than_svd(run):
    rows = [r for r in run.matrices if r.method == "tt" and r.svd_rank >= 1
            and LEAST_SHARE <= r.ratio_to_dense < 1]
    measured = ""
    if not rows:
        verdict = claims.UNKNOWN
        evidence = "No tensor train beside a truncated SVD of as many bytes."
    else:
        wins = [r for r in rows if r.relative_error < r.svd_relative_error]
        from_share = _wins_from(rows)
        verdict = (claims.HOLDS if len(wins) == len(rows) else
                   claims.CONSTANT if from_share is not None else claims.FAILS)
        ratio = statistics.median(r.relative_error / r.svd_relative_error for r in rows)
        evidence = (f"The train's error is the smaller one in {len(wins)} of "
                    f"{claims.plural(len(rows), 'case')}; the median of train over SVD is "
                    f"{ratio:.2f}. ")
        measured = f"{len(wins)} of {len(rows)}; error {ratio:.2f} times the SVD's"
        parts = []
        for cores in sorted({r.cores for r in rows}):
            mine = [r for r in rows if r.cores == cores]
            won = [r for r in mine if r.relative_error < r.svd_relative_error]
            parts.append(f"{cores} cores {len(won)} of {len(mine)}" + (
                f", from {min(r.ratio_to_dense for r in won):.0%} of the bytes on" if won else ""))
        evidence += "; ".join(parts) + "."
        if from_share is not None and verdict != claims.HOLDS:
            evidence += f" All of them win from {from_share:.0%} of the dense bytes on."
    return claims.Verdict(
        "W2",
        "A tensor train keeps more of a trained matrix than a truncated SVD of as many bytes.",
        verdict, evidence,
        "Looked at each matrix and rank at which a train has at least 2% of the dense bytes and "
        "fewer than dense. Holds: the train's relative Frobenius error is smaller in all. With a "
        "constant: in all from some share of the bytes on, of 90% or less. Does not hold: "
        "otherwise.",
        "", "no better, as neurons come in no order", measured, "weights-matrices")


def _wins_from(rows):
    """The share of bytes from which on every train wins, if it is at most 90%."""
    lost = max((r.ratio_to_dense for r in rows if r.relative_error >= r.svd_relative_error),
               default=0)
    beyond = [r.ratio_to_dense for r in rows if r.ratio_to_dense > lost]
    return min(beyond) if beyond and min(beyond) <= 0.9 else None


# W3

def leaner_and_faster(run):
    dense = [r for r in run.passes if r.method == "dense" and r.time_ratio_to_dense]
    rows = [r for r in run.passes if r.method == "tt" and r.status == "ok"
            and r.time_ratio_to_dense and r.ratio_to_dense <= HALF]
    measured = ""
    if not dense or not rows:
        verdict, evidence = claims.UNKNOWN, "No pass of a compressed encoder beside the dense one."
    else:
        fastest = min(r.time_ratio_to_dense for r in dense)
        peak = min(r.peak_ratio_to_dense for r in dense)
        settings = collections.defaultdict(list)
        for row in rows:
            settings[row.cores, row.rank].append(row)
        good = {place: [r for r in group if r.peak_ratio_to_dense < peak
                        and r.time_ratio_to_dense <= fastest] for place, group in settings.items()}
        won = sum(bool(group) for group in good.values())
        verdict = (claims.HOLDS if won == len(settings) else
                   claims.CONSTANT if won else claims.FAILS)
        leanest = min(rows, key=lambda r: r.peak_ratio_to_dense)
        quickest = min(rows, key=lambda r: r.time_ratio_to_dense)
        worst = max(rows, key=lambda r: r.peak_ratio_to_dense)
        evidence = (f"In {won} of {claims.plural(len(settings), 'setting')} with half of the "
                    "feed-forward bytes or less some variant needs less peak memory than dense and "
                    f"no more time than the faster dense layer ({fastest:.2f}). Leanest: "
                    f"{leanest.variant}, "
                    f"{leanest.peak_ratio_to_dense:.2f} of the peak, most of which is the "
                    f"vocabulary's ({setting_words(leanest)}); fastest: {quickest.variant}, "
                    f"{quickest.time_ratio_to_dense:.2f} of the time, at mean cosine "
                    f"{quickest.mean_cosine:.2f} ({setting_words(quickest)}). {worst.variant} "
                    f"needs up to {style.ratio_text(worst.peak_ratio_to_dense)} times the dense "
                    "peak.")
        measured = (f"peak {leanest.peak_ratio_to_dense:.2f}, time "
                    f"{quickest.time_ratio_to_dense:.2f} of dense")
    return claims.Verdict(
        "W3", "With its feed-forward layers compressed, the encoder needs less memory and no more "
        "time.", verdict, evidence,
        "Looked at passes with tensor trains of half of the feed-forward bytes or less, whatever "
        "they lose. Holds: in every setting some variant has a lower peak, weights included, and a "
        "time no longer than that of the faster of dense and dense-onednn. With a constant: in "
        "some. Does not hold: in none.", "", "", measured, "weights-passes")


# Tables

def build(run, verdicts):
    made = (verdict_table(verdicts), checks(run), quality(run), alone(run), front(run),
            left_out(run))
    return [table for table in made if table.rows]


def verdict_table(verdicts):
    return tables.Table("claims", "Claims and verdicts", "Computed from the rows of this run.",
                        ("id", "claim", "verdict", "evidence"),
                        tuple((v.id, v.claim, v.verdict, v.evidence) for v in verdicts))


def checks(run):
    return tables.Table(
        "checks", "The encoder beside others", "The unchanged model in float32, before anything "
        "else is measured: largest difference of an element.",
        ("what", "sentences", "difference", "allowed", "status"),
        tuple((r.check, str(r.sentences), f"{r.difference:.1e}", f"{r.allowed:.1e}", r.status)
              for r in run.checks), ("sentences", "difference", "allowed"))


def quality(run):
    rows = []
    for r in (r for r in run.embeddings if r.compressed == "all"):
        errors = [m.relative_error for m in run.matrices if figures.place(m) == figures.place(r)]
        rows.append((figures.method_words(r), str(r.rank), f"{r.feed_forward_bytes / 1e6:.2f}",
                     f"{r.ratio_to_dense:.1%}",
                     f"{statistics.median(errors):.3f}" if errors else "", f"{r.mean_cosine:.4f}",
                     f"{r.worst_cosine:.4f}", f"{r.spearman:.4f}"))
    return tables.Table(
        "quality", "All feed-forward matrices compressed", "Median relative error of a matrix; "
        "cosine of the sentence embeddings with the original's, mean and worst; Spearman's "
        "correlation of all pairwise similarities.",
        ("how", "rank", "MB", "of dense", "matrix error", "mean cosine", "worst cosine",
         "Spearman"),
        tuple(rows), ("rank", "MB", "of dense", "matrix error", "mean cosine", "worst cosine",
                      "Spearman"))


def alone(run):
    names = list(dict.fromkeys(r.compressed for r in run.embeddings if r.compressed != "all"))
    ways = list(dict.fromkeys(figures.method_words(r) for r in run.embeddings
                              if r.compressed != "all"))
    found = {(r.compressed, figures.method_words(r)): r.mean_cosine for r in run.embeddings}
    return tables.Table(
        "alone", "One matrix at a time", "Mean cosine with that matrix alone compressed, "
        "at the same share of its bytes.", ("matrix", *ways),
        tuple((name, *(f"{found[name, way]:.4f}" if (name, way) in found else "" for way in ways))
              for name in names), tuple(ways))


def front(run):
    """Of each setting the leanest and the fastest variant."""
    rows = []
    for group in figures.pass_groups(run):
        ok = [r for r in group if r.status == "ok" and r.time_ratio_to_dense]
        leanest = min(ok, key=lambda r: (r.peak_bytes, r.time_ns), default=None)
        fastest = min(ok, key=lambda r: r.time_ratio_to_dense, default=None)
        for words, best in (("leanest", leanest), ("fastest", fastest)):
            if best:
                rows.append((figures.method_words(best), str(best.rank or ""),
                             f"{best.ratio_to_dense:.1%}", words, best.variant,
                             f"{best.weight_bytes / 1e6:.1f}", f"{best.peak_bytes / 1e6:.1f}",
                             f"{best.peak_ratio_to_dense:.2f}", f"{best.time_ns / 1e6:.1f}",
                             f"{best.time_ratio_to_dense:.2f}", f"{best.mean_cosine:.3f}"))
    return tables.Table(
        "front", "A pass of the encoder: the leanest and the fastest variant",
        "Weights of the whole encoder; peak memory of a pass, weights included; time, and its "
        "ratio to dense measured in the same rounds.",
        ("how", "rank", "of dense", "", "variant", "weights, MB", "peak, MB", "peak/dense", "ms",
         "time/dense", "cosine"), tuple(rows),
        ("rank", "of dense", "weights, MB", "peak, MB", "peak/dense", "ms", "time/dense", "cosine"))


def left_out(run):
    return tables.Table(
        "unmeasured", "Passes without figures, and why", "All that did not end ok.",
        ("how", "rank", "variant", "status", "reason"),
        tuple((figures.method_words(r), str(r.rank), r.variant, r.status, r.reason)
              for r in run.passes if r.status != "ok"), ("rank",))


# Report

def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    run = load(directory)
    out = out or directory
    verdicts = judge(directory)
    drawn = figures.draw(run, os.path.join(out, "plots"), formats)
    paths = [path for figure in drawn for path in figure.paths]
    made = build(run, verdicts)
    paths += tables.write(made, os.path.join(out, "tables"))
    paths.append(_write(run, verdicts, drawn, made, os.path.join(out, "report.html")))
    return paths


def _write(run, verdicts, drawn, made, path):
    sections = [("claims", "Claims and verdicts", report.claims_html(verdicts))]
    for name, title in _SECTIONS:
        mine = [figure for figure in drawn if figure.section == name]
        if mine:
            sections.append((name, title, "\n".join(map(report.figure_html, mine))))
    sections += [("tables", "Tables", report.tables_html(made)),
                 ("machine", "Machine and how to reproduce", _machine(run))]
    wrong = [r for r in run.checks if r.status != "ok"]
    alarm = ('<div class="bad">The encoder is not the model it should be: no figure below should '
             "be trusted.</div>" if wrong else "")
    machine = run.run.get("machine") or {}
    subtitle = " · ".join(filter(None, (
        machine.get("cpu_model"), f"{len(run.matrices)} errors of matrices, {len(run.embeddings)} "
        f"of embeddings, {len(run.passes)} passes")))
    answer = [f"{v.claim.rstrip('.')}: {v.verdict}. {v.evidence}" for v in verdicts[:1]]
    return report.render(path, "ttbench real_weights: a trained transformer's layers, decomposed",
                         subtitle, answer, sections, alarm)


def _machine(run):
    parts = [report.machine_html(run.run)]
    notes = [*(run.run.get("warnings") or []), *run.notes]
    if notes:
        items = "".join(f"<li>{html.escape(str(note))}</li>" for note in notes)
        parts.append(f"<ul>{items}</ul>")
    if run.run.get("command"):
        parts.append(f"<pre>{html.escape(str(run.run['command']))}</pre>")
    parts.append("<p>This page and the plots, from the rows alone:</p>"
                 "<pre>bazel run //plotting:real_weights -- DIRECTORY</pre>")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(report.draw_main("real_weights", draw_all, sys.argv[1:]))
