"""Draws the replicas experiment: which layers move, copy and replicate, and what is exchanged.

    bazel run //plotting:replicas -- results/runs/X

Everything comes from replicas.csv (docs/replicas.md).
"""

import collections
import dataclasses
import math
import os
import sys

from matplotlib.lines import Line2D

from plotting import analysis
from plotting import claims
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables

_CHECKS = {
    "to-dtype": "to(dtype)",
    "to-device": "to(device)",
    "clone": "clone()",
    "save-load": "save and load",
    "replicate": "replicas in one process",
    "processes": "two processes",
}
_REGISTERED, _PLAIN = "registered", "plain"


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of replicas.csv: one check of one layer."""

    schema: int
    experiment: str
    cell: str
    variant: str
    algorithm: str
    in_modes: str
    out_modes: str
    ranks: str
    cores: int | None
    d: int | None
    rank: int | None
    batch: int
    phase: str
    dtype: str
    threads: int
    keeping: str
    check: str
    status: str
    reason: str
    max_relative_error: float | None
    processes: int | None
    gradient_bytes: int | None
    exchanged_bytes: int | None
    exchanged_bytes_formula: int | None
    step_ns: int | None
    exchange_ns: int | None
    joined_ns: int | None
    repro: str

    @property
    def ok(self):
        return self.status == "ok"

    @property
    def layer(self):
        return f"{self.in_modes}:{self.out_modes}"


@dataclasses.dataclass(frozen=True)
class Run:
    rows: tuple
    info: dict
    notes: tuple

    def of(self, keeping):
        return [row for row in self.rows if row.keeping == keeping and row.status != "skipped"]

    @property
    def exchanges(self):
        """What two processes exchanged, by layers that train as they should."""
        return [row for row in self.of(_REGISTERED) if row.check == "processes" and row.ok
                and row.gradient_bytes]


def load(directory):
    """Raises results.ResultsError."""
    return Run(*results_lib.load_table(directory, "replicas.csv", Row))


def judge(directory):
    """The verdict on C7."""
    return (_moves(load(directory)),)


# C7

def _moves(run):
    claim = "TT cores do not move with the model, and training on several devices breaks."
    rule = ("Does not hold: with cores as registered parameters every check of every layer passes, "
            "while the same layer with cores as plain attributes fails. Holds: a registered layer "
            "fails a check. Without rows of both, or where the plain layer fails nothing, nothing "
            "is judged.")
    registered, plain = run.of(_REGISTERED), run.of(_PLAIN)
    failed = [row for row in registered if not row.ok]
    broken = [row for row in plain if not row.ok]
    errors = {dtype: max((row.max_relative_error for row in registered if row.dtype == dtype
                          and row.check == "processes" and row.max_relative_error is not None),
                         default=None) for dtype in ("float64", "float32")}
    largest = ", ".join(f"{error:.1g} in {dtype}" for dtype, error in errors.items()
                        if error is not None)
    pairs = exchanged_pairs(run)
    if not registered or not broken:
        verdict = claims.UNKNOWN
    else:
        verdict = claims.HOLDS if failed else claims.FAILS
    sentences = []
    if registered:
        passed = len(registered) - len(failed)
        sentences.append(
            f"{passed} of {claims.plural(len(registered), 'check')} on "
            f"{len({row.variant for row in registered})} variants with registered cores pass; "
            f"gradients of two processes differ from one's by at most {largest}.")
    if failed:
        sentences.append(f"The first that fails: {failed[0].cell}, "
                         f"{_CHECKS.get(failed[0].check, failed[0].check)}: {failed[0].reason}.")
    if broken:
        reasons = {row.check: row.reason for row in broken}
        sentences.append("With plain attributes " + "; ".join(
            f"{_CHECKS.get(check, check)}: {reason}" for check, reason in reasons.items()) + ".")
    measured = f"{len(registered) - len(failed)} of {len(registered)} checks pass" + (
        f"; with plain cores {len(plain) - len(broken)} of {len(plain)}" if plain else "")
    if pairs:
        dense, tt = max(pairs, key=lambda pair: pair[0].gradient_bytes / pair[1].gradient_bytes)
        sentences.append(
            f"A step sends {style.bytes_text(_sent(dense))} dense and "
            f"{style.bytes_text(_sent(tt))} TT ({tt.layer}, r = {tt.rank}).")
    return claims.Verdict(
        "C7", claim, verdict, " ".join(sentences) or "No rows.", rule,
        published="cores stayed behind at model.to(device)",
        predicted="equal gradients; bytes as the parameters", measured=measured,
        figure="replicas-exchange" if run.exchanges else "")


def _sent(row):
    """Counted by the kernel, or, where it does not count, by the formula."""
    return row.exchanged_bytes if row.exchanged_bytes is not None else row.exchanged_bytes_formula


def exchanged_pairs(run):
    """(dense, TT) of the same layer, batch and type."""
    dense = {(row.layer, row.batch, row.dtype): row for row in run.exchanges if not row.ranks}
    return [(dense[row.layer, row.batch, row.dtype], row) for row in run.exchanges
            if row.ranks and (row.layer, row.batch, row.dtype) in dense]


# Figure

def draw(run, out, formats):
    """Bytes and times over the rank, for layers with several ranks."""
    layers = collections.defaultdict(list)
    for row in run.exchanges:
        if row.rank or not row.ranks:  # Clipped ranks differ, and have no place on the axis.
            layers[row.layer, row.batch, row.dtype].append(row)
    layers = {key: rows for key, rows in layers.items()
              if len({row.rank for row in rows if row.ranks}) > 1}
    if not layers:
        return []
    variants = style.Palette([row.variant for rows in layers.values() for row in rows])
    fig, axes = style.grid(len(layers), 2, panel_height=1.45, left=0.75, right=0.1, top=0.25,
                           bottom=0.42, between=0.75, under=0.7, header=0.62)
    for line, ((layer, batch, dtype), rows) in zip(axes, layers.items()):
        ranks = sorted({row.rank for row in rows if row.ranks})
        for ax, values, unit, words in (
                (line[0], _byte_lines(rows, ranks), 1, f"{layer}, B = {batch}: bytes sent"),
                (line[1], _time_lines(rows, ranks), 1e6, "time of a step")):
            for variant, dash, marker, filled, points in values:
                ax.plot([rank for rank, _ in points], [value / unit for _, value in points],
                        color=variants.color(variant), linestyle=dash, marker=marker,
                        markersize=4, linewidth=3 if variant == "dense" and filled else 1.1,
                        markerfacecolor=None if filled else "white")
            ax.set_xscale("log", base=2)
            ax.set_yscale("log", base=10 if unit > 1 else 2)
            ax.set_xticks(ranks, labels=[str(rank) for rank in ranks])
            ax.xaxis.minorticks_off()
            ax.set_xlabel("rank")
            ax.set_title(words, loc="left", fontweight="bold", pad=3)
            ax.grid(True, color="#E8E8E8", linewidth=0.5)
            _label(ax, unit)
    style.titles(fig, "Two processes that train one layer: what they exchange, and what it takes",
                 "Half of the batch in each, one thread each, gradients added up by gloo over "
                 f"loopback. {next(iter(layers))[2]}")
    style.legend(fig, [style.variant_handle(variants, name) for name in variants.order] + [
        Line2D([], [], color="#333333", linestyle="none", marker="o", markersize=4,
               label="bytes: counted; line: formula"),
        Line2D([], [], color="#333333", linestyle=":", marker="o", markersize=4,
               markerfacecolor="white", label="time: one process, whole batch")],
        below_top=0.43, columns=5)
    rows = tuple(row for rows in layers.values() for row in rows)
    return [analysis.Drawn(
        "replicas-exchange", "What two processes exchange in a step, and what the step takes",
        "Left, bytes that one process sends, by the kernel's count of its connections, and the "
        "formula 2 (P − 1) / P times the gradients; every form of the TT layer has the same. Right, median time of a step of two processes "
        "with half of the batch each, and of one process with all of it.", "figures",
        tuple(style.save(fig, style.stem(out, "replicas-exchange"), formats)), rows, ())]


def _series(rows, ranks, variant, figure):
    """A variant's points over the rank; the dense layer has the same at every rank."""
    mine = [row for row in rows if row.variant == variant and figure(row)]
    if mine and not mine[0].ranks:
        return [(rank, figure(mine[0])) for rank in ranks]
    return sorted((row.rank, figure(row)) for row in mine)


def _byte_lines(rows, ranks):
    """Forms of one layer have the same gradients: dense, and one of the others."""
    palette = style.Palette([row.variant for row in rows])
    shown = [name for name in palette.order if any(
        row.variant == name and not row.ranks for row in rows)]
    shown += [name for name in palette.order if name not in shown][:1]
    for name in shown:
        yield (name, "-", "", True, _series(rows, ranks, name,
                                            lambda row: row.exchanged_bytes_formula))
        yield (name, "none", "o", True, _series(rows, ranks, name, lambda row: row.exchanged_bytes))


def _time_lines(rows, ranks):
    palette = style.Palette([row.variant for row in rows])
    for name in palette.order:
        yield (name, palette.dash(name), palette.marker(name), True,
               _series(rows, ranks, name, lambda row: row.step_ns))
        yield (name, ":", palette.marker(name), False,
               _series(rows, ranks, name, lambda row: row.joined_ns))


def _label(ax, unit):
    low, high = ax.get_ylim()
    if unit == 1:
        exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
        step = max(1, math.ceil(len(exponents) / 5))
        ticks = [2 ** e for e in exponents if e % step == 0]
        ax.set_yticks(ticks, labels=[style.bytes_text(tick) for tick in ticks])
    else:
        ticks = [m * 10 ** e for e in range(math.floor(math.log10(low)),
                                            math.ceil(math.log10(high)) + 1)
                 for m in (1, 3) if low <= m * 10 ** e <= high]
        ax.set_yticks(ticks, labels=[f"{tick:g} ms" for tick in ticks])
    ax.yaxis.minorticks_off()


# Tables

def build(run):
    return [table for table in (_checks(run), _exchange(run)) if table.rows]


def _checks(run):
    rows = []
    for keeping in (_REGISTERED, _PLAIN):
        by_check = collections.defaultdict(list)
        for row in run.of(keeping):
            by_check[row.check].append(row)
        for check in sorted(by_check, key=lambda name: (*_CHECKS, name).index(name)):
            mine = by_check[check]
            passed = [row for row in mine if row.ok]
            errors = [row.max_relative_error for row in mine if row.max_relative_error is not None]
            rows.append((keeping, _CHECKS.get(check, check),
                         f"{len(passed)} of {len(mine)}",
                         f"{max(errors):.1g}" if errors else "",
                         next((row.reason for row in mine if not row.ok), "")))
    return tables.Table(
        "replicas-checks", "Layers that move, copy and replicate",
        "Cores as registered parameters, and, as t3nsor first kept them, as plain attributes of the "
        "module. Errors are relative to the largest element.",
        ("cores", "check", "pass", "largest error", "what goes wrong"), tuple(rows),
        ("largest error",))


def _exchange(run):
    rows = []
    for dense, tt in exchanged_pairs(run):
        rows.append((tt.layer, str(tt.rank or tt.ranks), str(tt.batch), tt.dtype, tt.variant,
                     str(dense.gradient_bytes), str(tt.gradient_bytes), _text(dense.exchanged_bytes),
                     _text(tt.exchanged_bytes), str(tt.exchanged_bytes_formula),
                     f"{dense.step_ns / 1e6:.3g}", f"{tt.step_ns / 1e6:.3g}",
                     f"{tt.exchange_ns / 1e6:.3g}", f"{tt.joined_ns / 1e6:.3g}"))
    return tables.Table(
        "replicas-exchange", "What two processes exchange in a step",
        "Bytes: sent by one process, counted by the kernel, gloo's headers included. Times: medians, "
        "in ms; joined: one process with the whole batch.",
        ("layer", "rank", "B", "dtype", "variant", "dense gradients", "gradients", "dense sent",
         "sent", "formula", "dense step", "step", "exchange", "joined"), tuple(rows),
        ("rank", "B", "dense gradients", "gradients", "dense sent", "sent", "formula", "dense step",
         "step", "exchange", "joined"))


def _text(value):
    return "" if value is None else str(value)


# Output

def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    run = load(directory)
    out = out or directory
    drawn = draw(run, os.path.join(out, "plots"), formats)
    built = build(run)
    verdicts = (_moves(run),)
    paths = [path for figure in drawn for path in figure.paths]
    paths += tables.write(built, os.path.join(out, "tables"))
    sections = [("claims", "Claims and verdicts", report.claims_html(verdicts)),
                ("figures", "What is exchanged", "".join(map(report.figure_html, drawn))),
                ("tables", "Tables", report.tables_html(built)),
                ("machine", "Machine", report.machine_html(run.info))]
    paths.append(report.render(
        os.path.join(out, "report.html"), "ttbench replicas: moving, copying and replicating layers",
        " · ".join(filter(None, [(run.info.get("machine") or {}).get("cpu_model"),
                                 f"LibTorch {run.info.get('libtorch')}",
                                 claims.plural(len(run.rows), "row")])),
        [verdicts[0].evidence], sections))
    return paths


if __name__ == "__main__":
    sys.exit(report.draw_main("replicas", draw_all, sys.argv[1:]))
