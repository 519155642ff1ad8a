"""Two runs, or two variants of one run, side by side.

    bazel run //benchmarks:compare -- A B
    bazel run //benchmarks:compare -- DIR --variants=fused,dense-onednn

Ratios are second over first: bytes and FLOPs as they are, times as ratios to the dense layer of the
same process, so that the runs may be of different hours. Nothing is judged; //benchmarks:regress is
what tells a change from noise.
"""

import argparse
import dataclasses
import datetime
import math
import os
import pathlib
import sys

from benchmarks import exact
from benchmarks import merge
from plotting import analysis
from plotting import pairs as figure
from plotting import results as results_lib
from plotting import style
from plotting import tables

_USAGE, _NOTHING, _WRITE = 2, 3, 4
_SHOWN = 30


class Nothing(Exception):
    """Why there is nothing to compare, in a sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same layer, batch and phase on both sides; ratios are second over first."""

    name: str
    group: str
    phase: str
    time: float | None
    peak: float | None
    held: float | None
    flops: float | None


def _ratio(first, second, column):
    values = getattr(first, column), getattr(second, column)
    return values[1] / values[0] if all(values) else None


def _pair(first, second, name, group, times):
    return Pair(name, group, first.phase,
                _ratio(first, second, "time_ratio_to_dense") if times else None,
                *(_ratio(first, second, column)
                  for column in ("peak_bytes", "held_bytes", "flops_model")))


def pair_runs(first, second, times):
    """Pairs of the cells that ended ok in both runs, a group for each variant."""
    others = {row.cell: row for row in second.rows if row.ok}
    # The dense layer's time is the unit of all others.
    return [_pair(row, others[row.cell], row.cell, row.variant, times and not row.baseline)
            for row in first.rows if row.ok and row.cell in others]


def pair_variants(run, variants):
    """Pairs of two variants' cells, a group for each layer; dense ones pair with every rank."""
    def place(row):
        return row.shape, row.batch, row.phase, row.conditions
    first, second = ([row for row in run.rows if row.ok and row.variant == variant]
                     for variant in variants)
    found = []
    for row in first:
        for other in second:
            if place(row) != place(other) or (
                    row.ranks and other.ranks and row.ranks != other.ranks):
                continue
            ranks = row.ranks or other.ranks
            # "1x8x8x1" with ends that say nothing.
            inner = "x".join(dict.fromkeys(ranks.split("x")[1:-1]))
            layer = analysis.shape_words(row) + (f", r {inner}" if inner else "")
            found.append(_pair(row, other, f"{layer}, B {row.batch}, {row.phase}, "
                                           f"{row.conditions.words}", layer, True))
    return found


def table(pairs, names, note):
    """The pairs, the largest change of time or memory first."""
    def size(pair):
        return max((abs(math.log(ratio)) for ratio in (pair.time, pair.peak) if ratio), default=0)

    def text(ratio):
        return "" if ratio is None else "1" if ratio == 1 else f"{ratio:.3g}"
    rows = [(pair.name, *map(text, (pair.time, pair.peak, pair.held, pair.flops)))
            for pair in sorted(pairs, key=size, reverse=True)]
    columns = ("time", "peak memory", "held", "FLOPs")
    return tables.Table("compare", f"{names[1]} over {names[0]}", note, ("cell", *columns),
                        tuple(rows), columns)


def _terminal(compared):
    lines = [compared.header, *compared.rows[:_SHOWN]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(compared.header))]
    out = [compared.title + ". " + compared.note]
    for line in lines:
        out.append("  ".join(
            text.rjust(width) if column in compared.numeric else text.ljust(width)
            for column, text, width in zip(compared.header, line, widths)).rstrip())
    if len(compared.rows) > _SHOWN:
        out.append(f"and {len(compared.rows) - _SHOWN} more, in compare.md")
    return "\n".join(out)


def _medians(pairs):
    parts = []
    for words, column in (("time", "time"), ("peak memory", "peak")):
        ratios = [getattr(pair, column) for pair in pairs if getattr(pair, column)]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            parts.append(f"{words} {style.ratio_text(mean)} in the geometric mean "
                         f"({style.ratio_text(min(ratios))} to {style.ratio_text(max(ratios))})")
    return f"{len(pairs)} cells: " + ("; ".join(parts) or "no figure on both sides") + "."


def compare(directories, variants, out):
    """Writes the table and the figure into `out`; returns what to print. Raises Nothing."""
    runs = [results_lib.load(os.fspath(directory)) for directory in directories]
    notes = [f"{run.directory}: {note}" for run in runs for note in run.notes]
    if variants:
        known = list(dict.fromkeys(row.variant for row in runs[0].rows))
        missing = [variant for variant in variants if variant not in known]
        if missing:
            raise Nothing(f"The run has no variant {missing[0]}; it has {', '.join(known)}.")
        names = variants
        pairs = pair_variants(runs[0], variants)
    else:
        names = [pathlib.Path(directory).name for directory in directories]
        if names[0] == names[1]:
            names = ["A", "B"]
        difference = exact.difference_of_machines(runs[0].run, runs[1].run)
        if difference:
            notes.append(f"The runs are of different machines ({difference}); times are not "
                         "compared.")
        pairs = pair_runs(*runs, not difference)
    if not pairs:
        raise Nothing("No cell ended ok on both sides.")
    note = _medians(pairs)
    compared = table(pairs, names, note)
    out.mkdir(parents=True, exist_ok=True)
    (out / "compare.md").write_text(compared.markdown() + "".join(f"\n- {n}" for n in notes),
                                    encoding="utf-8")
    paths = figure.draw(pairs, names, note, os.fspath(out / "compare"))
    return "\n".join([_terminal(compared), *(f"note: {n}" for n in notes),
                      f"figure: {paths[0]}", os.fspath(out)])


def _variants(text):
    names = text.split(",")
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise argparse.ArgumentTypeError(f"'{text}' is not two variants, as in fused,dense-onednn")
    return names


def main(argv):
    parser = argparse.ArgumentParser(
        prog="compare", allow_abbrev=False,
        description="Puts two runs, or two variants of one run, side by side.")
    parser.add_argument("directories", nargs="+", metavar="DIR", help="two runs, or one")
    parser.add_argument("--variants", type=_variants, metavar="A,B",
                        help="two variants of one run; ratios are B over A")
    parser.add_argument("--out", metavar="DIR", help="for table and figure "
                                                     "[results/runs/compare-<time>]")
    flags = parser.parse_args(argv)
    if len(flags.directories) != (1 if flags.variants else 2):
        parser.error("give two runs, or one run and --variants=A,B")
    now = datetime.datetime.now(datetime.timezone.utc)
    out = merge.user_path(flags.out) if flags.out else pathlib.Path(
        os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "results", "runs",
        f"compare-{now:%Y%m%dT%H%M%SZ}").resolve()
    try:
        print(compare(list(map(merge.user_path, flags.directories)), flags.variants, out))
    except results_lib.ResultsError as error:
        print(f"compare: {error}", file=sys.stderr)
        return _NOTHING if isinstance(error, results_lib.SchemaError) else _USAGE
    except Nothing as error:
        print(f"compare: {error}", file=sys.stderr)
        return _NOTHING
    except OSError as error:
        print(f"compare: {error.filename} could not be read or written: {error.strerror}.",
              file=sys.stderr)
        return _WRITE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
