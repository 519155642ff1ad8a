"""Draws the copies experiment: which operators copy what, and what layout would avoid it.

    bazel run //plotting:copies -- results/runs/X

Everything comes from copies.csv and cells.csv (docs/copies.md).
"""

import collections
import dataclasses
import html
import os
import sys

from matplotlib import patches

from plotting import analysis
from plotting import claims
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables

# What is copied: name, colour, hatch.
_KINDS = (
    ("x", style.SKY, ""),
    ("intermediate", style.BLUE, ""),
    ("gradient", style.ORANGE, "////"),
    ("joined cores", style.VERMILION, "...."),
    ("core", style.BLACK, ""),
)
# Those whose bytes grow with the batch, or with the matrix; cores are small.
_LARGE = ("x", "intermediate", "gradient", "joined cores")


@dataclasses.dataclass(frozen=True)
class _Cell:
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

    @property
    def layer(self):
        return f"{self.in_modes}:{self.out_modes}"


@dataclasses.dataclass(frozen=True)
class Copy(_Cell):
    """A line of copies.csv: the copies of a cell that are alike, or a kernel's own scratch."""

    stage: str
    what: str  # "copy" or "scratch"
    operators: str
    tensor: str
    kind: str
    target: str
    held: int | None
    source_sizes: str
    source_strides: str
    target_strides: str
    producer: str
    consumer: str
    remedy: str
    products: int | None
    product_rows: int | None
    product_columns: int | None
    advice: str
    count: int
    bytes: int
    bytes_model: int | None

    @property
    def operator(self):
        """Who copied, without the steps that every copy takes."""
        chain = [op for op in self.operators.split(" > ") if op not in ("clone", "copy_")]
        return " > ".join(chain)


@dataclasses.dataclass(frozen=True)
class Cell(_Cell):
    """A line of cells.csv."""

    status: str
    reason: str
    copies: int | None
    copies_model: int | None
    copied_bytes: int | None
    copied_bytes_model: int | None
    scratch_bytes: int | None
    x_bytes: int | None
    computed_bytes: int | None
    allocated_bytes_model: int | None
    repro: str

    @property
    def ok(self):
        return self.status == "ok"


@dataclasses.dataclass(frozen=True)
class Run:
    cells: tuple
    copies: tuple  # of cells that are ok
    scratch: tuple  # likewise
    info: dict
    notes: tuple

    def of(self, cell):
        return [copy for copy in self.copies if copy.cell == cell.cell]

    def units(self, cell, kinds=tuple(name for name, *_ in _KINDS), stages=None):
        """Bytes copied over x's bytes."""
        copied = sum(copy.bytes for copy in self.of(cell)
                     if copy.kind in kinds and (not stages or copy.stage in stages))
        return copied / cell.x_bytes


def load(directory):
    """Raises results.ResultsError."""
    cells, info, notes = results_lib.load_table(directory, "cells.csv", Cell)
    lines, _, more = results_lib.load_table(directory, "copies.csv", Copy)
    ok = {cell.cell for cell in cells if cell.ok}
    lines = [line for line in lines if line.cell in ok]
    return Run(cells, tuple(line for line in lines if line.what == "copy"),
               tuple(line for line in lines if line.what == "scratch"), info,
               tuple(dict.fromkeys(notes + more)))


def judge(directory):
    """The verdict on C10, and on our own kernel."""
    run = load(directory)
    return (_hidden(run), _fused(run))


# C10

def callers(run, operator):
    """Cells in which `operator` copies, or computes on what was copied for it."""
    names = {copy.variant for copy in run.copies
             if copy.operators.startswith(operator) or operator in (copy.producer, copy.consumer)}
    return [cell for cell in run.cells if cell.ok and cell.variant in names]


def _reference(cells):
    """The cell that figures are quoted from: three cubic cores of 16 and rank 8 where it ran."""
    return max(cells, key=lambda cell: (cell.cores == 3, cell.d == 16, cell.rank == 8,
                                        cell.phase == "inference", cell.batch), default=None)


def _layer_words(cell):
    rank = f", r = {cell.rank}" if cell.rank else ""
    where = f"d = {cell.d}, K = {cell.cores}" if cell.d else cell.layer
    return f"{where}{rank}, B = {cell.batch}"


def _hidden(run):
    claim = "The reshapes under an einsum or a bmm make hidden copies."
    rule = ("Holds: in every cell a reshape under einsum, and one under bmm, copies x, an "
            "intermediate, a gradient or the joined cores. With a constant: it does under one of "
            "the two, or in some cells; elsewhere it copies cores alone. Does not hold: under "
            "neither. Rows whose copies are not the cost model's, one by one, judge nothing.")
    wrong = [cell for cell in run.cells if cell.status not in ("ok", "skipped")]
    # einsum computes by bmm too; a variant counts by what it calls itself.
    einsum = callers(run, "einsum")
    bmm = [cell for cell in callers(run, "bmm") if cell not in einsum]
    if not einsum or not bmm or wrong:
        evidence = (f"{claims.plural(len(wrong), 'cell')} not as the model says, the first "
                    f"{wrong[0].cell}: {wrong[0].reason}" if wrong else
                    "No cells of both operators.")
        return claims.Verdict("C10", claim, claims.UNKNOWN, evidence, rule)
    large = {name: [cell for cell in cells if _reshapes(run, cell, _LARGE)]
             for name, cells in (("einsum", einsum), ("bmm", bmm))}
    if len(large["einsum"]) == len(einsum) and len(large["bmm"]) == len(bmm):
        verdict = claims.HOLDS
    elif large["einsum"] or large["bmm"]:
        verdict = claims.CONSTANT
    else:
        verdict = claims.FAILS
    quoted = [_reference([cell for cell in cells if cell.variant == name])
              for cells in (einsum, bmm)
              for name in dict.fromkeys(cell.variant for cell in cells)]
    def units(bytes_of):
        return ", ".join(f"{cell.variant} {style.ratio_text(bytes_of(cell) / cell.x_bytes)} x"
                         for cell in quoted)
    copies = sum(cell.copies for cell in run.cells if cell.ok)
    evidence = (
        f"Under einsum {len(large['einsum'])} of {claims.plural(len(einsum), 'cell')} copy more "
        f"than cores, under bmm {len(large['bmm'])} of {claims.plural(len(bmm), 'cell')}. "
        f"Forward ({_layer_words(quoted[0])}), in units of x: {units(lambda c: c.copied_bytes)}. "
        f"All {copies} copies of {claims.plural(sum(c.ok for c in run.cells), 'cell')} are the "
        "cost model's, one by one and to the byte.")
    where = _layer_words(quoted[0])
    return claims.Verdict(
        "C10", claim, verdict, evidence, rule,
        published="no figure: einsum and bmm \"didn't help\"",
        predicted=f"forward, {where}: {units(lambda c: c.copied_bytes_model)}",
        measured=units(lambda c: c.copied_bytes), figure=_stem(quoted[0]))


def _reshapes(run, cell, kinds):
    return [copy for copy in run.of(cell)
            if copy.kind in kinds and {"reshape", "contiguous"} & set(copy.operators.split(" > "))]


def _fused(run):
    cells = [cell for cell in run.cells if cell.ok and cell.variant == "fused"]
    rule = ("Holds: no operator copies anything in any cell of `fused`, and what its kernel packs "
            "is smaller than x in each. With a constant: it copies nothing, and packs as much as x "
            "or more in some. Does not hold: something is copied.")
    claim = "The fused kernel copies no activation; it packs its cores into scratch of its own."
    if not cells:
        return claims.Verdict("copies-fused", claim, claims.UNKNOWN, "No cell of `fused`.", rule)
    copying = [cell for cell in cells if cell.copies]
    packed = {cell.cell: sum(line.bytes for line in run.scratch
                             if line.cell == cell.cell and line.tensor == "packed cores")
              for cell in cells}
    over = [cell for cell in cells if packed[cell.cell] >= cell.x_bytes]
    verdict = claims.FAILS if copying else claims.CONSTANT if over else claims.HOLDS
    largest = max(cells, key=lambda cell: packed[cell.cell] / cell.x_bytes)
    share = f"{style.ratio_text(packed[largest.cell] / largest.x_bytes)} x"
    return claims.Verdict(
        "copies-fused", claim, verdict,
        f"{claims.plural(sum(cell.copies for cell in cells), 'copy')} in "
        f"{claims.plural(len(cells), 'cell')}; packed cores are at most {share} "
        f"({_layer_words(largest)}, {analysis.phase_words(largest.phase)}). x and y pass through "
        "its tiles, a few rows at a time.", rule,
        predicted="0 copies", measured=f"{sum(cell.copies for cell in cells)} copies",
        figure=_stem(_reference(cells)))


# Figures

def _stem(cell):
    return f"copies-{cell.in_modes}-{cell.out_modes}-r{cell.rank}-b{cell.batch}"


def _groups(run):
    """The cells of each layer, rank and batch; dense ones belong to every rank."""
    groups = collections.defaultdict(list)
    for cell in run.cells:
        if cell.ok and cell.ranks:
            groups[cell.layer, cell.ranks, cell.batch, cell.dtype, cell.threads].append(cell)
    for (layer, _, *others), group in groups.items():
        group += [cell for cell in run.cells if cell.ok and not cell.ranks and cell.layer == layer
                  and [cell.batch, cell.dtype, cell.threads] == others]
    return list(groups.values())


def draw(run, out, formats):
    """The layer that is quoted, in each phase; then all others, in training where it ran."""
    groups = _groups(run)
    if not groups:
        return []
    quoted = _stem(_reference([cell for cell in run.cells if cell.ok and cell.ranks]))
    groups.sort(key=lambda group: _stem(group[0]) != quoted)
    drawn = [_draw_layer(run, groups[0], out, formats)]
    return drawn + ([_draw_layers(run, groups[1:], out, formats)] if groups[1:] else [])


def _layer_title(group):
    ranked = next(cell for cell in group if cell.ranks)
    return f"{ranked.layer}, r = {ranked.rank}, B = {ranked.batch}"


def _draw_layer(run, group, out, formats):
    ranked = next(cell for cell in group if cell.ranks)
    panels = [(analysis.phase_words(phase), [cell for cell in group if cell.phase == phase])
              for phase in analysis.phase_order(cell.phase for cell in group)]
    return _draw_panels(run, panels, out, formats, _stem(ranked),
                        f"What each variant copies: {_layer_title(group)}")


def _draw_layers(run, groups, out, formats):
    panels = []
    for group in groups:
        phase = analysis.phase_order(cell.phase for cell in group)[-1]
        panels.append((_layer_title(group), [cell for cell in group if cell.phase == phase]))
    words = {analysis.phase_words(cells[0].phase) for _, cells in panels}
    return _draw_panels(run, panels, out, formats, "copies-layers",
                        f"What each variant copies in other layers: {', '.join(sorted(words))}")


def _draw_panels(run, panels, out, formats, stem, title):
    """Two panels in a row, each (title, cells)."""
    cells = [cell for _, group in panels for cell in group]
    variants = style.Palette([cell.variant for cell in cells]).order[::-1]
    fig, axes = style.grid(-(-len(panels) // 2), 2, panel_height=0.17 * len(variants) + 0.1,
                           left=1.25, right=0.72, top=0.22, bottom=0.42, between=0.72, under=0.62,
                           header=0.6)
    flat = [ax for line in axes for ax in line]
    for ax in flat[len(panels):]:
        ax.set_visible(False)
    for place, (ax, (words, group)) in enumerate(zip(flat, panels)):
        of = {cell.variant: cell for cell in group}
        most = max(run.units(cell) for cell in group) or 1
        for i, variant in enumerate(variants):
            if variant in of:
                _bar(ax, run, of[variant], i)
        ax.set_xlim(0, most * 1.02)
        ax.set_ylim(-0.6, len(variants) - 0.4)
        ax.set_yticks(range(len(variants)), labels=variants if place % 2 == 0 else [])
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("bytes copied over x's bytes")
        ax.set_title(words, loc="left", fontweight="bold", pad=3)
        ax.grid(True, axis="x", color="#E8E8E8", linewidth=0.5)
        ax.set_axisbelow(True)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    style.titles(fig, title, "In brackets: as a share of what its arithmetic reads and writes, where "
                 f"operators do it. {cells[0].dtype}, {claims.plural(cells[0].threads, 'thread')}")
    style.legend(fig, [patches.Patch(facecolor=color, edgecolor="white", hatch=hatch, linewidth=0,
                                     label=name) for name, color, hatch in _KINDS],
                 below_top=0.43, columns=len(_KINDS))
    return analysis.Drawn(
        stem, title,
        "Bytes that operators write to move elements and compute nothing, by the tensor that is "
        "copied, in units of x. Copies that a GEMM library makes inside itself do not show.",
        "figures", tuple(style.save(fig, style.stem(out, stem), formats)), tuple(cells), ())


def _bar(ax, run, cell, i):
    left = 0
    for name, color, hatch in _KINDS:
        width = run.units(cell, (name,))
        if width:
            ax.barh(i, width, left=left, height=0.72, color=color, hatch=hatch,
                    edgecolor="white", linewidth=0)
        left += width
    words = style.ratio_text(left) if left >= 0.005 else "0" if left == 0 else f"{left:.1g}"
    if cell.computed_bytes and left:
        words += f" ({_percent(cell.copied_bytes / cell.computed_bytes)})"
    ax.annotate(words, (left, i), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)


def _percent(share):
    return f"{share:.0%}" if share >= 0.01 else "<1%"


# Tables

def build(run):
    found = [by_operator(run, group) for group in _groups(run)]
    return [table for table in (*found, remedies(run), scratch(run)) if table.rows]


def by_operator(run, group):
    """Operators by variants: bytes copied in training, or else in what there is, over x's."""
    phase = analysis.phase_order(cell.phase for cell in group)[-1]
    ranked = next(cell for cell in group if cell.ranks)
    cells = {cell.variant: cell for cell in group if cell.phase == phase and cell.copies}
    variants = style.Palette(cells).order
    sums = collections.defaultdict(lambda: collections.defaultdict(int))
    for variant, cell in cells.items():
        for copy in run.of(cell):
            sums[copy.stage, copy.operator][variant] += copy.bytes / cell.x_bytes
    rows = [(stage, operator, *(_units(values.get(variant)) for variant in variants))
            for (stage, operator), values in sorted(sums.items(), key=lambda item: (
                item[0][0] != "forward", -max(item[1].values()), item[0][1]))]
    none = [cell.variant for cell in group if cell.phase == phase and not cell.copies]
    return tables.Table(
        f"operators-{_stem(ranked).removeprefix('copies-')}",
        f"Which operator copies: {ranked.layer}, r = {ranked.rank}, B = {ranked.batch}, "
        + analysis.phase_words(phase),
        "Bytes copied in units of x. No copies: " + (", ".join(none) or "none") + ".",
        ("stage", "operator", *variants), tuple(rows), tuple(variants))


def _units(value):
    if not value:
        return ""
    return style.ratio_text(value) if value >= 0.1 else f"{value:.1g}"


def remedies(run):
    """What would do without each copy of the layer that is quoted."""
    quoted = _reference([cell for cell in run.cells if cell.ok and cell.ranks])
    rows = []
    for group in _groups(run):
        if quoted is None or _stem(group[0]) != _stem(quoted):
            continue
        phase = analysis.phase_order(cell.phase for cell in group)[-1]
        cells = {cell.variant: cell for cell in group if cell.phase == phase}
        for variant in style.Palette(cells).order:
            rows += [(variant, copy.stage, copy.operator, copy.tensor, copy.kind, str(copy.count),
                      _units(copy.bytes / cells[variant].x_bytes), "yes" if copy.held else "",
                      copy.remedy, copy.advice)
                     for copy in sorted(run.of(cells[variant]), key=lambda copy: (
                         copy.stage != "forward", -copy.bytes, copy.tensor))]
    return tables.Table(
        "remedies", "What would avoid each copy" + (f": {_layer_words(quoted)}" if quoted else ""),
        "From the strides of what is copied, and of what its producer wrote and its consumer reads. "
        "Calls are GEMM calls with operands that small in place of one; fewer of them than rows of "
        "x are cheap, many small ones need a kernel made for them, such as ours.",
        ("variant", "stage", "operator", "tensor", "kind", "copies", "over x", "held", "remedy",
         "advice"), tuple(rows), ("copies", "over x"))


def scratch(run):
    rows = []
    for group in _groups(run):
        for cell in group:
            rows += [(cell.variant, _layer_words(cell), analysis.phase_words(cell.phase),
                      line.stage, line.tensor, str(line.bytes), _units(line.bytes / cell.x_bytes))
                     for line in run.scratch if line.cell == cell.cell]
    return tables.Table(
        "scratch", "What kernels of the suite pack and hold for themselves",
        "Asked for by the kernel and gone by the end of the pass. Packed cores are copies; x and y "
        "pass through the tiles a few rows at a time.",
        ("variant", "layer", "phase", "stage", "buffer", "bytes", "over x"),
        tuple(dict.fromkeys(rows)), ("bytes", "over x"))


# Output

def answer(run):
    ok = [cell for cell in run.cells if cell.ok]
    quoted = _reference([cell for cell in ok if cell.copies])
    if quoted is None:
        return ["Nothing was copied in this run."]
    beside = [cell for cell in ok if cell.layer == quoted.layer and cell.batch == quoted.batch
              and cell.phase == quoted.phase and cell.ranks in ("", quoted.ranks)]
    most = max(beside, key=lambda cell: cell.copied_bytes)
    none = [cell.variant for cell in beside if not cell.copies]
    lines = [f"For {_layer_words(quoted)}, {analysis.phase_words(quoted.phase)}, {most.variant} copies "
             f"most: {style.ratio_text(most.copied_bytes / most.x_bytes)} times x"
             + (f"; {', '.join(none)} copy nothing." if none else ".")]
    shares = collections.Counter()
    for copy in run.copies:
        shares[copy.remedy] += copy.bytes
    total = sum(shares.values())
    lines.append("Of all bytes copied in this run, " + "; ".join(
        f"{_percent(count / total)} {_REMEDY_WORDS.get(name, name)}"
        for name, count in sorted(shares.items(), key=lambda item: -item[1])) + ".")
    return lines


_REMEDY_WORDS = {
    "read in place": "could be read where they lie",
    "write in place": "could be written where they are wanted",
    "keep in order": "are cores that could be kept in the order wanted",
    "copy once": "are copied again at once",
    "take over": "lie as their copies do",
    "broadcast": "repeat elements",
    "one type": "are converted",
    "other order": "need another order of contraction",
}


def _model(run):
    ok = [cell for cell in run.cells if cell.ok]
    return (f'<div class="good">In {claims.plural(len(ok), "cell")} every copy is the cost '
            f"model's: {sum(cell.copies for cell in ok)} copies of "
            f"{sum(cell.copied_bytes for cell in ok)} bytes.</div>") if ok else ""


def _alarm(run):
    wrong = [cell for cell in run.cells if cell.status not in ("ok", "skipped")]
    return ('<div class="bad"><strong>' + claims.plural(len(wrong), "cell")
            + " not as the cost model says.</strong> The first: "
            + html.escape(f"{wrong[0].cell}: {wrong[0].reason}") + "</div>") if wrong else ""


def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    run = load(directory)
    out = out or directory
    drawn = draw(run, os.path.join(out, "plots"), formats)
    built = build(run)
    paths = [path for figure in drawn for path in figure.paths]
    paths += tables.write(built, os.path.join(out, "tables"))
    sections = [("claims", "Claims and verdicts", report.claims_html(judge(directory))),
                ("figures", "What each variant copies", "".join(map(report.figure_html, drawn))),
                ("tables", "Tables", report.tables_html(built)),
                ("machine", "Machine", report.machine_html(run.info))]
    paths.append(report.render(
        os.path.join(out, "report.html"), "ttbench copies: who copies what, and how to avoid it",
        " · ".join(filter(None, [(run.info.get("machine") or {}).get("cpu_model"),
                                 f"LibTorch {run.info.get('libtorch')}",
                                 claims.plural(len(run.cells), "cell")])),
        answer(run), sections, _alarm(run), _model(run)))
    return paths


if __name__ == "__main__":
    sys.exit(report.draw_main("copies", draw_all, sys.argv[1:]))
