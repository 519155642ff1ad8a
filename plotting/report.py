"""The self-contained HTML report of a run: the answer first, then why."""

import base64
import collections
import dataclasses
import html
import os
import statistics
import string
import sys

from plotting import analysis
from plotting import claims
from plotting import results as results_lib
from plotting import style
from plotting import tables as tables_lib

_SECTIONS = (
    ("law", "Where the crossover lies"),
    ("peak-maps", "Peak memory over batch and rank"),
    ("memory", "Memory over the batch"),
    ("time-maps", "Time over batch and rank"),
    ("winner", "Which variant needs least"),
    ("roofline", "What each way makes of the machine"),
    ("layers", "Real layers, and more cores"),
)
CLASSES = {claims.HOLDS: "holds", claims.CONSTANT: "constant",
            claims.FAILS: "fails", claims.UNKNOWN: "unknown"}
_IMAGE_TYPES = (("svg", "image/svg+xml"), ("png", "image/png"))


@dataclasses.dataclass(frozen=True)
class Page:
    """What a family's report has of its own."""

    title: str  # After the experiment's name.
    answer: tuple  # Sentences.
    verdicts: tuple
    sections: tuple  # (name, title) of the figures' sections, in order.
    redraw: str  # The program that makes the report anew.


def linear_page(results, palette):
    return Page("when a tensor-train layer saves memory and time, and when it costs more",
                tuple(answer(results, palette)), claims.judge(results), _SECTIONS,
                "//plotting:crossover")


def write(results, palette, drawn, tables, path, page=None):
    """The report of a sweep."""
    page = page or linear_page(results, palette)
    sections = [("claims", "Claims and verdicts", claims_html(page.verdicts)),
                *_figure_sections(results, drawn, page.sections),
                ("tables", "Tables", tables_html(tables)),
                ("machine", "Machine, warnings and how to reproduce",
                 _machine(results, page.redraw))]
    experiment = results.run.get("experiment") or next(
        (row.experiment for row in results.rows if row.experiment), "run")
    return render(path, f"ttbench {experiment}: {page.title}", _subtitle(results), page.answer,
                  sections, _mismatches(results), _model(results))


def render(path, title, subtitle, answer, sections, alarm="", good=""):
    """Writes a page: sentences that answer, then sections of (name, title, HTML).

    `alarm` and `good` are HTML, above the answer and below it.
    """
    template = os.path.join(os.path.dirname(__file__), "report.html.tmpl")
    with open(template, encoding="utf-8") as file:
        frame = string.Template(file.read())
    text = frame.substitute(
        title=_escape(title), subtitle=_escape(subtitle), mismatches=alarm,
        answer="".join(f"<p>{_escape(line)}</p>" for line in answer),
        model=good, page_width=f"{style.PAGE_IN * 1.3:.2f}in",
        column_width=f"{style.COLUMN_IN * 1.3:.2f}in",
        contents="".join(f'<a href="#{name}">{_escape(title)}</a>'
                         for name, title, _ in sections),
        body="\n".join(f'<h2 id="{name}">{_escape(title)}</h2>\n{body}'
                       for name, title, body in sections))
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return path


def answer(results, palette):
    """What a reader takes away, in a few sentences with figures from the rows."""
    if not any(row.ok for row in results.rows):
        return ["No cell of this run ended ok, so there is nothing to compare."]
    lines = [line for line in (_crossover_line(results, palette), _least_line(results),
                               _fastest_line(results)) if line]
    return lines or ["This run has no tensor-train layer beside a dense one, so it says "
                     "nothing about when one saves."]


def _crossover_line(results, palette):
    """At one (d, r), from which batch on each variant trains with more memory."""
    found = [c for c in analysis.crossings(results)
             if c.d and c.rank and c.metric == "peak"]
    phase = next((p for p in ("train", *analysis.PHASES)
                  if any(c.phase == p for c in found)), None)
    found = [c for c in found if c.phase == phase]
    if not found:
        return ""
    dtype = "float32" if any(c.dtype == "float32" for c in found) else found[0].dtype
    found = [c for c in found if c.dtype == dtype]
    cores = 3 if any(c.cores == 3 for c in found) else found[0].cores
    found = [c for c in found if c.cores == cores]
    ds = sorted({c.d for c in found})
    d = 16 if 16 in ds else ds[-1]
    ranks = sorted({c.rank for c in found if c.d == d})
    rank = 8 if 8 in ranks else statistics.median_low(ranks)
    found = [c for c in found if (c.d, c.rank) == (d, rank)]
    found.sort(key=lambda c: (c.high or 0, palette.order.index(c.variant)
                              if c.variant in palette.order else 99))
    parts = []
    at = collections.defaultdict(list)
    for c in found:
        if c.verdict == "measured":
            at[f"at B = {c.high}"].append(c.variant)
        elif c.verdict == "bracketed":
            at[f"between B = {c.low} and {c.high}" if c.low
               else f"by B = {c.high}"].append(c.variant)
    parts += [f"{_and(names)} {where}" for where, names in at.items()]
    text = (f"For d = {d}, r = {rank} ({cores} cores, {dtype}) "
            f"the dense layer's {analysis.phase_words(phase)} memory is passed by "
            + "; ".join(parts) if parts else
            f"For d = {d}, r = {rank} no variant's {analysis.phase_words(phase)} memory "
            "starts below the dense layer's and passes it")
    for verdict, words in (("always", "at every batch by"), ("never", "never by"),
                           ("beyond", "not in the range measured by")):
        names = [c.variant for c in found if c.verdict == verdict]
        if names:
            text += f"; {words} {_and(names)}"
    if cores == 3:
        text += f". The thread's 2Br > d³ would say B = {analysis.claim_batch(d, rank)}"
    return text + "."


def _least_line(results):
    cells = _configurations(results, results.peak_ratio)
    if not cells:
        return ""
    below = sum(min(tt)[0] < 1 for tt, _ in cells.values())
    first = collections.Counter(min(tt)[1] for tt, _ in cells.values())
    name, count = min(first.items(), key=lambda item: (-item[1], item[0]))
    return (f"The leanest TT form needs less peak memory than dense in {below} of "
            f"{claims.plural(len(cells), 'configuration')}; most often it is {name} "
            f"({count}).")


def _fastest_line(results):
    cells = _configurations(results, results.time_ratio)
    if not cells:
        return "Time was not measured in this run."
    wins = [place for place, (tt, dense) in cells.items() if min(tt)[0] < min(dense)[0]]
    best = max(cells.values(), key=lambda cell: min(cell[1])[0] / min(cell[0])[0])
    others = sorted({name for _, dense in cells.values() for _, name in dense})
    cpu = (results.run.get("machine") or {}).get("cpu_model")
    return (f"On this machine{f' ({cpu})' if cpu else ''} the fastest TT form beats the "
            f"{'faster of ' + _and(others) if len(others) > 1 else 'dense layer'} in "
            f"{len(wins)} of {claims.plural(len(cells), 'configuration')} (at best "
            f"{style.ratio_text(min(best[1])[0] / min(best[0])[0])} times as fast, with "
            f"{min(best[0])[1]}).")


def _configurations(results, ratio):
    """{configuration: ([(ratio, TT variant)], [(ratio, dense variant)])}."""
    dense = collections.defaultdict(list)
    ranked = collections.defaultdict(list)
    for row in results.rows:
        value = ratio(row)
        if value is None or row.variant == analysis.PICKER:
            continue
        place = (row.shape, row.batch, row.phase, row.conditions)
        if analysis.is_ranked(row):
            ranked[place, row.ranks].append((value, row.variant))
        else:
            dense[place].append((value, row.variant))
    return {place: (cells, dense.get(place[0]) or [(1.0, "dense")])
            for place, cells in ranked.items()}


def _and(names):
    names = list(names)
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _subtitle(results):
    machine = results.run.get("machine") or {}
    counts = collections.Counter(row.status for row in results.rows)
    parts = [machine.get("cpu_model"),
             _with("LibTorch ", results.run.get("libtorch")),
             results.run.get("gemm_library"),
             claims.plural(len(results.rows), "cell") + ": " + ", ".join(
                 f"{counts[status]} {status}" for status in
                 sorted(counts, key=lambda s: (s != "ok", s))) if counts else "no cells"]
    return " · ".join(str(part) for part in parts if part)


def _with(prefix, value):
    return f"{prefix}{value}" if value else None


def _mismatches(results):
    check = analysis.check_model(results)
    if not check.mismatches and not check.crossovers:
        return ""
    crossovers = ("" if not check.crossovers else
                  f" and {claims.plural(len(check.crossovers), 'measured crossover')}")
    return (f'<div class="bad"><strong>{check.checked - check.equal} of '
            f"{claims.plural(check.checked, 'row')}{crossovers} differ from the cost "
            "model.</strong> Until "
            "that is explained, no figure below should be trusted."
            f'<div class="wide">{tables_lib.mismatches(results).html()}</div></div>')


def _model(results):
    check = analysis.check_model(results)
    if not check.checked:
        return '<p class="note">No row has both a measured and a model byte figure.</p>'
    if check.mismatches:
        return ""
    rest = (f" {claims.plural(check.unmodelled, 'row')} without a model."
            if check.unmodelled else "")
    return (f'<div class="good">In {check.equal} of {claims.plural(check.checked, "row")} '
            "every measured byte figure that is modelled equals the cost model's, to the byte."
            f"{rest}</div>")


def claims_html(verdicts):
    rows = "".join(
        f"<tr><td>{v.id}</td><td>{_escape(v.claim)}</td>"
        f'<td class="verdict {CLASSES[v.verdict]}">{_escape(v.verdict)}</td>'
        f'<td>{_escape(v.evidence)}<div class="rule">Rule: {_escape(v.rule)}</div></td></tr>'
        for v in verdicts)
    return ('<div class="wide"><table><thead><tr><th></th><th>what is claimed</th>'
            "<th>verdict</th><th>what the rows of this run say</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>")


def _figure_sections(results, drawn, wanted):
    sections = []
    for name, title in wanted:
        figures = [figure for figure in drawn if figure.section == name]
        if figures:
            sections.append((name, title, "\n".join(
                figure_html(figure) + _rows_behind(results, figure) for figure in figures)))
    return sections


def figure_html(figure, directory="plots"):
    """The figure itself, its caption and links to its files, which lie in `directory`."""
    files = " · ".join(f'<a href="{directory}/{os.path.basename(path)}">'
                       f"{os.path.splitext(path)[1][1:].upper()}</a>"
                       for path in figure.paths)
    return (f'<figure id="{figure.stem}"><img alt="{_escape(figure.title)}" '
            f'src="{_data_uri(figure)}">'
            f"<figcaption><strong>{_escape(figure.title)}.</strong> "
            f"{_escape(figure.caption)} ({files})</figcaption></figure>\n")


def _data_uri(figure):
    for suffix, kind in _IMAGE_TYPES:
        for path in figure.paths:
            if path.endswith("." + suffix):
                with open(path, "rb") as file:
                    data = base64.b64encode(file.read()).decode("ascii")
                return f"data:{kind};base64,{data}"
    raise ValueError(f"{figure.stem} was saved neither as SVG nor as PNG")


_MOST_ROWS = 600


def _rows_behind(results, figure):
    if len(figure.rows) > _MOST_ROWS:
        lines = _ranges(sorted(results.lines[row.cell] for row in figure.rows))
        return (f"<details><summary>The {claims.plural(len(figure.rows), 'row')} of "
                f"results.csv behind this figure</summary><p>Lines {lines}.</p></details>")
    header = ("line", "cell", "algorithm", "status", *figure.columns)
    rows = []
    for row in figure.rows:
        status = row.status if row.ok or not row.reason else f"{row.status}: {row.reason}"
        values = [_value(getattr(row, column)) for column in figure.columns]
        rows.append((str(results.lines[row.cell]), row.cell, row.algorithm, status,
                     *values))
    table = tables_lib.Table("", "", "", header, tuple(rows),
                             ("line", *(c for c in figure.columns if c != "ranks")))
    return (f"<details><summary>The {claims.plural(len(rows), 'row')} of results.csv behind "
            f'this figure</summary><div class="wide">{table.html()}</div></details>')


def _ranges(numbers):
    """1, 2, 3, 7 as 1–3, 7."""
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def _value(value):
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def tables_html(tables):
    parts = []
    for table in tables:
        if table.name in ("claims", "mismatches"):
            continue
        body = (f'<p class="note">{_escape(table.note)} '
                f'(<a href="tables/{table.name}.md">Markdown</a> · '
                f'<a href="tables/{table.name}.tex">LaTeX</a>)</p>'
                f'<div class="wide">{table.html()}</div>')
        if len(table.rows) > 30:
            body = (f"<details><summary>{claims.plural(len(table.rows), 'row')}</summary>"
                    f"{body}</details>")
        parts.append(f'<h3 id="table-{table.name}">{_escape(table.title)}</h3>{body}')
    return "\n".join(parts)


def machine_html(run):
    """What run.json knows of the machine and the libraries."""
    machine = run.get("machine") or {}
    facts = [("CPU", machine.get("cpu_model")),
             ("vector extensions", machine.get("vector_extensions")),
             ("cores", machine.get("cores")),
             ("memory", _size(machine.get("memory_bytes"))),
             ("L1 data, L2, L3", ", ".join(filter(None, (
                 _size(machine.get(f"{level}_bytes"))
                 for level in ("l1_data", "l2", "l3"))))),
             ("kernel", machine.get("kernel")), ("compiler", machine.get("compiler")),
             ("LibTorch", run.get("libtorch")), ("GEMM library", run.get("gemm_library")),
             ("FMA peak", _rates(run, "fma_peak_gflops", "GFLOP/s")),
             ("bandwidth", _rates(run, "bandwidth_gb_per_s", "GB/s")),
             ("git revision", run.get("git_revision")),
             ("started", run.get("started_utc")), ("finished", run.get("finished_utc")),
             ("duration", f"{run['wall_s']:.0f} s"
              if isinstance(run.get("wall_s"), (int, float)) else None),
             ("flags", run.get("flags"))]
    rows = "".join(f"<tr><th>{name}</th><td>{_escape(_plain(value))}</td></tr>"
                   for name, value in facts if value not in (None, "", []))
    return f"<table>{rows}</table>" if rows else "<p>Nothing is known of the machine.</p>"


def _machine(results, redraw):
    run = results.run
    parts = [machine_html(run)]
    warnings = [*(run.get("warnings") or []), *results.notes]
    if warnings:
        parts.append("<h3>Warnings and notes</h3><ul>" + "".join(
            f"<li>{_escape(str(warning))}</li>" for warning in warnings) + "</ul>")
    if not results.has_crossover_file and any(map(analysis.is_ranked, results.rows)):
        parts.append('<p class="note">This run has no crossover.csv: crossovers are told '
                     "from the cells, as ranges.</p>")
    if not run.get("bandwidth_gb_per_s") and any(row.gflops for row in results.rows):
        parts.append('<p class="note">This run has no bandwidth in its run.json, so there is '
                     "no roofline.</p>")
    parts.append("<h3>How to reproduce</h3>")
    if run.get("command"):
        revision = run.get("git_revision")
        parts.append("<p>The whole run"
                     + (f", at revision <code>{_escape(str(revision))}</code>"
                        if revision else "") + ":</p>"
                     f"<pre>{_escape(_plain(run['command']))}</pre>")
    examples = [row for row in results.rows if row.repro and row.ok and not row.baseline]
    example = next(filter(analysis.is_ranked, examples), examples[0] if examples else None)
    if example:
        parts.append(f"<p>One cell, here <code>{_escape(example.cell)}</code> (the column "
                     "repro has the command of each):</p>"
                     f"<pre>{_escape(example.repro)}</pre>")
    parts.append("<p>This page and the plots, from the rows alone:</p>"
                 f"<pre>bazel run {redraw} -- DIRECTORY</pre>")
    return "\n".join(parts)


def _size(value):
    return style.bytes_text(value) if isinstance(value, (int, float)) and value else None


def _rates(run, name, unit):
    rates = run.get(name)
    if not isinstance(rates, dict):
        return None
    return ", ".join(f"{value:.0f} {unit} ({key.replace('/t', ', threads: ')})"
                     for key, value in sorted(rates.items())
                     if isinstance(value, (int, float)))


def _plain(value):
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return str(value)


def _escape(text):
    return html.escape(text, quote=True)


def draw_main(name, draw_all, argv):
    """main() of a module that draws one experiment's run; returns the exit code."""
    if len(argv) != 1:
        print(f"{name}: give the directory of a run", file=sys.stderr)
        return 2
    directory = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), argv[0])
    try:
        paths = draw_all(directory)
    except results_lib.ResultsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(f"{len(paths)} files; open {paths[-1]}")
    return 0
