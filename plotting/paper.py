"""The claims report: every claim with its verdict, from the rows of several experiments.

    bazel run //plotting:paper -- results/reference [--out DIR]

A directory of the report holds one directory for each experiment, as //experiments:paper leaves
them; those that are missing leave their claims "not measured here". Same rows, same bytes.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import fnmatch
import html
import importlib
import json
import os
import pathlib
import sys

from plotting import analysis
from plotting import claims
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One whose module has judge(directory) and draw_all(directory, out, formats)."""

    name: str  # Of the experiment, its directory and its module in plotting/.
    shows: str

    @property
    def module(self):
        return importlib.import_module("plotting." + self.name)


EXPERIMENTS = (
    Experiment("crossover", "where single layers pass the dense one in memory and in time"),
    Experiment("transformer_xl", "a whole Transformer-XL, dense and compressed"),
    Experiment("training", "whether the form of a layer changes how a network learns"),
    Experiment("real_weights", "a trained transformer's layers, decomposed"),
    Experiment("replicas", "moving, copying and replicating TT layers"),
    Experiment("copies", "hidden copies, by operator"),
    Experiment("attention", "a decoder's attention, cloned once per step"),
)

# The claims of the two threads: a report has a row for each, in these words where no run judges it.
CLAIMS = {
    "C1": "TT with 3 cores: weights d²(r² + 2r), activations Bd³(2r + 1).",
    "C2": "TT uses more memory than dense when 2Br > d³.",
    "C3": "The compressed Transformer-XL needs more memory at inference too: 3021 MB, not 2132 MB.",
    "C4": "Rebuilding the full matrix brings memory back to about the dense layer's.",
    "C5": "A single einsum over all cores also has high memory.",
    "C6": "naive for more than 3 cores.",
    "C7": "TT cores do not move with the model, and training on several devices breaks.",
    "C8": "One variable takes 830 MB over all cloned decoders; preallocating saves 1.6 GB.",
    "C9": "In-place reuse saves 50%, where both tensors have the same size.",
    "C10": "The reshapes under an einsum or a bmm make hidden copies.",
}

_NOT_HERE = (
    "Everything above ran on a CPU. Bytes are those that LibTorch asks of its allocator, and they are "
    "the same on a GPU wherever the same operators run; times, what a caching allocator reserves on "
    "top, and the workspaces of cuBLAS and cuDNN are not. The threads' own figures (3021 and 2132 MB, "
    "7700 and 1500 MB, 6877 and 5243 MiB) were read from a GPU's driver, which counts the context and "
    "the allocator's reserve too; so ratios and differences are compared here, never those totals.")


@dataclasses.dataclass(frozen=True)
class Part:
    """What one experiment gives to the report."""

    experiment: Experiment
    verdicts: tuple
    run: dict  # run.json
    rows: int  # of its CSV files
    plots: tuple  # SVG files, relative to the report


def present(directory):
    """The experiments that have a directory with a run in it."""
    return [e for e in EXPERIMENTS if (pathlib.Path(directory) / e.name / "run.json").is_file()]


def draw_all(directory, out=None, formats=style.FORMATS, drawn=False):
    """Draws each experiment of `directory` and the claims report; returns paths, report.html last.

    drawn: the experiments' own plots, tables and reports lie in `out` already. Raises
    results.ResultsError where there is nothing to draw or it cannot be read.
    """
    out = out or directory
    found = present(directory)
    if not found:
        raise results_lib.ResultsError(
            f"{directory} has no experiment's run; one would be {EXPERIMENTS[0].name}/ with a "
            "run.json")
    os.makedirs(out, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(min(len(found), os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(_part, e.name, str(directory), str(out), formats, drawn) for e in found]
        paths, parts = [], []
        for job in jobs:
            these, part = job.result()
            paths += these
            parts.append(part)
    table = claims_table(parts)
    paths += tables.write([table], os.path.join(out, "tables"))
    paths.append(_write(parts, os.path.join(out, "report.html")))
    return paths


def _part(name, directory, out, formats, drawn):
    """Draws one experiment, in a process of its own."""
    experiment = next(e for e in EXPERIMENTS if e.name == name)
    source, target = (pathlib.Path(d) / name for d in (directory, out))
    paths = [] if drawn else list(map(str, experiment.module.draw_all(
        str(source), str(target), formats)))
    run = json.loads((source / "run.json").read_text(encoding="utf-8"))
    plots = tuple(sorted(f"{name}/plots/{p.name}" for p in (target / "plots").glob("*.svg")))
    return paths, Part(experiment, tuple(experiment.module.judge(str(source))), run,
                       _count_rows(source), plots)


def _count_rows(directory):
    count = 0
    for path in sorted(directory.glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            count += max(0, sum(1 for _ in csv.reader(file)) - 1)
    return count


def verdicts(parts):
    """(part or None, verdict), the threads' claims first, in order; a claim nobody judged is there."""
    found = [(part, verdict) for part in parts for verdict in part.verdicts]
    ids = {verdict.id for _, verdict in found}
    found += [(None, claims.Verdict(name, words, claims.UNKNOWN,
                                    "No experiment of this run judges it.", ""))
              for name, words in CLAIMS.items() if name not in ids]
    return sorted(found, key=lambda pair: _place(pair[1].id))


def _place(name):
    """C1 .. C10 by number, what belongs to them after each, then the others as they stand."""
    digits = "".join(c for c in name[1:4] if c.isdigit())
    return (0, int(digits), name) if name.startswith("C") and digits else (1, 0, name)


def claims_table(parts):
    return tables.Table(
        "claims", "Claims and verdicts",
        "Computed from the rows of the runs below; rules and evidence stand in the report.",
        ("id", "claim", "published", "predicted", "measured", "verdict"),
        tuple((v.id, v.claim, v.published, v.predicted, v.measured, v.verdict)
              for _, v in verdicts(parts)))


def _figure_of(part, verdict):
    """The path of the plot that shows it, or None."""
    if part is None or not verdict.figure:
        return None
    return next((p for p in part.plots
                 if fnmatch.fnmatch(os.path.basename(p), verdict.figure + "*.svg")), None)


def _write(parts, path):
    judged = verdicts(parts)
    sections = [("claims", "Claims and verdicts", _summary(judged)),
                ("each", "Claim by claim", _each(judged, path)),
                ("not-here", "What was not measured here, and how to", _not_measured(judged)),
                ("runs", "The runs behind this page", _runs(parts))]
    return report.render(path, "ttbench: which claims about tensor-train layers hold",
                         _subtitle(parts), _answer(judged), sections)


def _subtitle(parts):
    machines = sorted({(p.run.get("machine") or {}).get("cpu_model") or "unknown CPU"
                       for p in parts})
    torch = sorted({str(p.run.get("libtorch")) for p in parts if p.run.get("libtorch")})
    rows = sum(p.rows for p in parts)
    return " · ".join([*machines, *(f"LibTorch {t}" for t in torch),
                       claims.plural(len(parts), "experiment"), f"{rows} rows"])


def _answer(judged):
    counts = {}
    for _, verdict in judged:
        if verdict.id in CLAIMS:
            counts.setdefault(verdict.verdict, []).append(verdict.id)
    order = (claims.HOLDS, claims.CONSTANT, claims.FAILS, claims.UNKNOWN)
    words = [f"{', '.join(counts[name])} {_PLURAL[name] if len(counts[name]) > 1 else name}"
             for name in order if name in counts]
    lines = [f"Of the threads' {len(CLAIMS)} claims, " + "; ".join(words) + "."]
    known = {v.id: v for _, v in judged if v.measured}
    lines += [words.format(known[name].measured, known[name].published)
              for name, words in _IN_SHORT if name in known]
    return lines


# What a reader takes away of one verdict: its measured and its published figure.
_IN_SHORT = (
    ("C2", "From which batch a TT layer needs more memory than the dense one: measured {0}; the law "
     "2Br > d³ says {1}."),
    ("C3", "The compressed Transformer-XL over the dense one, peak memory at inference: {0}; the thread "
     "says {1}."),
    ("fused, memory", "A kernel that keeps only x and the cores needs {0}."),
    ("fused, time", "It is the fastest way to compute the layer in {0}."),
)
_PLURAL = {claims.HOLDS: "hold", claims.CONSTANT: "hold with a constant",
           claims.FAILS: "do not hold", claims.UNKNOWN: "are not measured here"}


def _summary(judged):
    head = "".join(f"<th>{name}</th>" for name in (
        "", "what is claimed", "published", "predicted", "measured", "verdict"))
    rows = "".join(
        f'<tr><td><a href="#{_anchor(v)}">{_escape(v.id)}</a></td><td>{_escape(v.claim)}</td>'
        + "".join(f"<td>{_escape(text) or '–'}</td>"
                  for text in (v.published, v.predicted, v.measured))
        + f'<td class="verdict {report.CLASSES[v.verdict]}">{_escape(v.verdict)}</td></tr>'
        for _, v in judged)
    return (f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
            "</div>"
            '<p class="note">Published: what the threads and the papers say. Predicted: by the cost '
            "models, or by arithmetic. The same as "
            '<a href="tables/claims.md">Markdown</a> and <a href="tables/claims.tex">LaTeX</a>.</p>')


def _each(judged, path):
    shown, parts = {}, []
    for part, v in judged:
        parts.append(f'<h3 id="{_anchor(v)}">{_escape(v.id)}: '
                     f'<span class="verdict {report.CLASSES[v.verdict]}">{_escape(v.verdict)}</span>'
                     f"</h3><p><em>{_escape(v.claim)}</em></p><p>{_escape(v.evidence)}</p>"
                     + (f'<p class="rule">Rule: {_escape(v.rule)}</p>' if v.rule else ""))
        figure = _figure_of(part, v)
        if figure and figure in shown:
            parts.append(f'<p class="note">Its figure stands at '
                         f'<a href="#{_anchor(shown[figure])}">{_escape(shown[figure].id)}</a>.</p>')
        elif figure:
            shown[figure] = v
            stem = os.path.splitext(os.path.basename(figure))[0]
            plots = os.path.join(os.path.dirname(path), part.experiment.name, "plots")
            files = tuple(name for kind in style.FORMATS
                          if os.path.exists(name := os.path.join(plots, f"{stem}.{kind}")))
            caption = f"From the experiment {part.experiment.name}: {part.experiment.shows}"
            drawn = analysis.Drawn(stem, v.id, caption + ".", "", files, (), ())
            parts.append(report.figure_html(drawn, f"{part.experiment.name}/plots"))
        if part:
            parts.append(f'<p class="note">All its figures, tables and rows: '
                         f'<a href="{part.experiment.name}/report.html">'
                         f"{part.experiment.name}/report.html</a></p>")
    return "\n".join(parts)


def _not_measured(judged):
    missing = [v.id for _, v in judged if v.verdict == claims.UNKNOWN]
    text = f"<p>{_escape(_NOT_HERE)}</p>"
    if missing:
        text += ("<p>Claims without rows in these runs: " + _escape(", ".join(missing))
                 + ". The preset that measures all of them:</p>"
                 "<pre>bazel run //experiments:paper -- --preset=default</pre>")
    return text


def _runs(parts):
    text = ""
    for part in parts:
        run = part.run
        text += (f"<h3>{part.experiment.name}</h3><p>{_escape(part.experiment.shows)}: "
                 f'{claims.plural(part.rows, "row")} in its CSV files. '
                 f'<a href="{part.experiment.name}/report.html">Its report</a>.</p>'
                 f"<details><summary>Machine, libraries and flags</summary>"
                 f"{report.machine_html(run)}</details>")
        if run.get("command"):
            text += f"<pre>{_escape(_plain(run['command']))}</pre>"
    return text + ("<p>This page, from the rows alone:</p>"
                   "<pre>bazel run //experiments:paper -- --from=DIRECTORY</pre>")


def _plain(value):
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _anchor(verdict):
    return "claim-" + "".join(c if c.isalnum() else "-" for c in verdict.id.lower())


def _escape(text):
    return html.escape(text, quote=True)


def main(argv):
    parser = argparse.ArgumentParser(prog="paper", description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="one that holds a directory for each experiment")
    parser.add_argument("--out", help="where to write (default: the directory itself)")
    try:
        flags = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code
    here = os.environ.get("BUILD_WORKING_DIRECTORY", "")
    directory = os.path.join(here, flags.directory)
    try:
        paths = draw_all(directory, os.path.join(here, flags.out) if flags.out else directory)
    except results_lib.ResultsError as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"paper: {error.filename or directory} could not be read or written: "
              f"{error.strerror}.", file=sys.stderr)
        return 2
    print(f"{len(paths)} files; open {paths[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
