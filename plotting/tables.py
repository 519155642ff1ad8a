"""The tables of a run, and how they are written as Markdown, LaTeX and HTML."""

import collections
import dataclasses
import html
import os
import statistics

from plotting import analysis
from plotting import claims
from plotting import style


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    title: str
    note: str
    header: tuple
    rows: tuple  # of tuples of str
    numeric: tuple = ()  # columns set flush right

    def markdown(self):
        def line(cells):
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        rule = ["---:" if name in self.numeric else "---" for name in self.header]
        return "\n".join([f"# {self.title}", "", self.note, "", line(self.header),
                          line(rule), *map(line, self.rows), ""])

    def latex(self):
        align = "".join("r" if name in self.numeric else
                        "p{0.3\\linewidth}" if name in ("claim", "evidence", "reason")
                        else "l" for name in self.header)
        def line(cells):
            return " & ".join(map(_latex, cells)) + r" \\"
        return "\n".join([
            f"% {self.title}", "% \\usepackage{booktabs,longtable}",
            f"\\begin{{longtable}}{{{align}}}",
            f"\\caption{{{_latex(self.title)}. {_latex(self.note)}}}\\\\",
            r"\toprule", line(self.header), r"\midrule", r"\endhead",
            *map(line, self.rows), r"\bottomrule", r"\end{longtable}", ""])

    def html(self):
        def line(cells, tag):
            return "<tr>" + "".join(
                f'<{tag}{" class=n" if name in self.numeric else ""}>'
                f"{html.escape(cell)}</{tag}>"
                for name, cell in zip(self.header, cells)) + "</tr>"
        return ("<table><thead>" + line(self.header, "th") + "</thead><tbody>"
                + "\n".join(line(row, "td") for row in self.rows) + "</tbody></table>")


_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
          "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "→": r"$\to$", "²": "$^2$", "³": "$^3$",
          "⁶": "$^6$", "≤": r"$\le$", "≥": r"$\ge$", "×": r"$\times$", "−": "$-$", "–": "--",
          "µ": r"\textmu{}", "…": r"\ldots{}", "<": "$<$", ">": "$>$", "|": "$|$", "“": "``", "”": "''"}


def _latex(text):
    return "".join(_LATEX.get(char, char) for char in text)


def build(results):
    """All tables that have rows, in the order of the report."""
    tables = (verdicts(results), crossovers(results), constants(results),
              held_forms(results), naive(results), einsum(results),
              many_cores(results), mismatches(results), unmeasured(results))
    return [table for table in tables if table.rows]


def write(tables, out):
    os.makedirs(out, exist_ok=True)
    paths = []
    for table in tables:
        for kind, text in (("md", table.markdown()), ("tex", table.latex())):
            path = os.path.join(out, f"{table.name}.{kind}")
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            paths.append(path)
    return paths


def verdicts(results):
    return Table("claims", "Claims and verdicts",
                 "Computed from the rows of this run; the rules stand in the report.",
                 ("id", "claim", "verdict", "evidence"),
                 tuple((v.id, v.claim, v.verdict, v.evidence)
                       for v in claims.judge(results)))


def crossovers(results):
    rows = []
    for c in analysis.crossings(results):
        measured = {"measured": str(c.high), "never": "never", "always": "always (B = 1)",
                    "beyond": "none in range"}.get(c.verdict)
        if c.verdict == "beyond" and c.low:
            measured = f"none up to {c.low}"
        if c.verdict == "bracketed":
            measured = (f"{c.low + 1} to {c.high}" if c.low else f"at most {c.high}")
        rows.append((c.variant, analysis.phase_words(c.phase), c.metric, c.layer,
                     str(c.rank) if c.rank else c.ranks, c.dtype, measured or c.verdict,
                     _text(c.model), _text(c.claim),
                     "" if c.k is None else f"{c.k:.3f}"))
    return Table("crossovers", "Crossovers: the batch from which TT needs more than dense",
                 "The smallest B at which the variant's bytes pass the dense layer's: held "
                 "(weights and what the backward holds) or peak; beside it the cost model's "
                 "answer and the smallest B with 2Br > d³. A range comes from the cells "
                 "alone, where no bisection was run.",
                 ("variant", "phase", "metric", "layer", "rank", "dtype", "measured B",
                  "model B", "thread B", "k"), tuple(rows),
                 ("rank", "measured B", "model B", "thread B", "k"))


def constants(results):
    rows = []
    for c in claims.constants(results):
        rows.append((
            c.variant, analysis.phase_words(c.phase), c.metric,
            "" if c.median is None else f"{c.median:.3f}",
            f"{min(c.ks):.3f} to {max(c.ks):.3f}" if c.ks else "",
            _expected(c),
            ", ".join(f"{count} {verdict}" for verdict, count in c.verdicts.items()),
            c.verdict))
    return Table("constants", "The constant k in 2Br = k d³",
                 "Measured at every exact crossover of three cubic cores. The median is over "
                 "the (d, r) where TT has at most 1/20 of the dense parameters, least and "
                 "most over all; the expectation is the design's for a plain sequential layer.",
                 ("variant", "phase", "metric", "median k", "least to most", "expected",
                  "crossovers over (d, r)", "2Br = k d³"), tuple(rows),
                 ("median k", "least to most", "expected"))


def _expected(constant):
    words, law = analysis.EXPECTED_K.get((constant.phase, constant.metric), ("", None))
    if law is None or not constant.ranks:
        return words
    most, least = law(constant.ranks[0]), law(constant.ranks[-1])
    return words if most == least else f"{words}: {least:.3f} to {most:.3f}"


def held_forms(results):
    return Table("held", "C1: what each variant holds for its backward",
                 "Held bytes as a straight line in B, over all (d, r) of three cubic cores, "
                 "in training. The slope is per row of x in units of d³ elements; the thread "
                 "says 2r + 1.",
                 ("variant", "slope", "constant, bytes", "series"),
                 tuple((h.variant, h.form,
                        str(h.offset[0]) if h.offset[0] == h.offset[1]
                        else f"{h.offset[0]} to {h.offset[1]}", str(h.series))
                       for h in claims.held(results)),
                 ("constant, bytes", "series"))


def naive(results):
    """The extremes of sequential against naive for each layer and phase."""
    groups = collections.defaultdict(list)
    for case in claims.naive_cases(results):
        if case.saved("sequential") is not None:
            groups[case.layer, case.phase, case.conditions].append(case)
    rows = []
    several = len({place[2] for place in groups}) > 1
    for place in sorted(groups, key=lambda p: (len(p[0]), p[0], p[1], str(p[2]))):
        ordered = sorted(groups[place], key=lambda case: case.saved("sequential"))
        for case in ordered[-1:] + ordered[:-1][:1]:
            einsum_ratio = case.saved("einsum")
            rows.append((
                case.layer, case.ranks, str(case.batch), analysis.phase_words(case.phase),
                *((case.conditions.words,) if several else ()),
                style.bytes_text(case.dense),
                style.bytes_text(case.peaks["naive"]),
                style.bytes_text(case.peaks["sequential"]),
                style.ratio_text(case.against_dense),
                style.ratio_text(case.saved("sequential")),
                "" if einsum_ratio is None else style.ratio_text(einsum_ratio)))
    return Table("naive", "C4: naive beside sequential and einsum, peak memory",
                 "For each layer and phase the configurations in which naive saves most over "
                 "sequential and least (below 1 naive needs more).",
                 ("layer", "ranks", "B", "phase", *(("conditions",) if several else ()),
                  "dense", "naive", "sequential", "naive/dense", "sequential/naive",
                  "einsum/naive"),
                 tuple(rows), ("B", "dense", "naive", "sequential", "naive/dense",
                               "sequential/naive", "einsum/naive"))


def einsum(results):
    rows = []
    for (variant, algorithm, phase), cells in claims.einsum_cases(results).items():
        ratios = [ratio for _, ratio in cells]
        rows.append((variant, algorithm, analysis.phase_words(phase), str(len(cells)),
                     style.ratio_text(statistics.median(ratios)),
                     f"{style.ratio_text(min(ratios))} to {style.ratio_text(max(ratios))}",
                     str(sum(ratio > 1 for ratio in ratios))))
    return Table("einsum", "C5: one einsum over x and all cores, peak memory over dense",
                 "By operand order and by the algorithm that ran.",
                 ("variant", "algorithm that ran", "phase", "cells", "median", "range",
                  "more than dense"), tuple(rows),
                 ("cells", "median", "range", "more than dense"))


def many_cores(results):
    rows = []
    for (cores, layer, ranks, variant), cells in claims.many_cores(results).items():
        good = [row for row in cells if row.ok]
        errors = [row.max_relative_error for row in good
                  if row.max_relative_error is not None]
        ratios = [r for r in map(results.peak_ratio, good) if r is not None]
        lost = collections.Counter(row.status for row in cells if not row.ok)
        rows.append((str(cores), layer, ranks, variant, str(len(good)),
                     ", ".join(f"{n} {status}" for status, n in sorted(lost.items())),
                     f"{max(errors):.1e}" if errors else "",
                     f"{style.ratio_text(min(ratios))} to {style.ratio_text(max(ratios))}"
                     if ratios else ""))
    return Table("cores", "C6: more than three cores",
                 "Cells that ran and agree with the float64 oracle.",
                 ("K", "layer", "ranks", "variant", "ok", "others", "largest error",
                  "peak/dense"), tuple(rows), ("K", "ok", "largest error", "peak/dense"))


def mismatches(results):
    check = analysis.check_model(results)
    figures = [(row.cell, column, measured, model)
               for row, column, measured, model in check.mismatches]
    figures += [(f"{c.variant}/{c.phase}/{c.metric}, {c.in_modes} → {c.out_modes}, "
                 f"ranks {c.ranks}, {c.dtype}", "crossover_batch", c.crossover_batch,
                 c.crossover_batch_model) for c in check.crossovers]
    return Table("mismatches", "What differs from the cost model",
                 f"{claims.plural(len(check.mismatches), 'byte figure')} in "
                 f"{claims.plural(check.checked - check.equal, 'row')}, "
                 f"{claims.plural(len(check.crossovers), 'crossover')}.",
                 ("cell", "column", "measured", "model", "difference"),
                 tuple((name, column, str(measured), str(model), f"{measured - model:+d}")
                       for name, column, measured, model in figures),
                 ("measured", "model", "difference"))


def unmeasured(results):
    groups = collections.defaultdict(list)
    for row in results.rows:
        if not row.ok:
            groups[row.status, row.variant, row.reason].append(row)
    rows = []
    for (status, variant, reason), cells in sorted(groups.items()):
        rows.append((status, variant, reason or "no reason given", str(len(cells)),
                     cells[0].cell + (" …" if len(cells) > 1 else "")))
    return Table("unmeasured", "Cells without figures, and why",
                 "All that were planned and did not end ok.",
                 ("status", "variant", "reason", "cells", "cell"), tuple(rows), ("cells",))


def _text(value):
    return "" if value is None else str(value)
