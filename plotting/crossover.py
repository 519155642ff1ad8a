"""Draws everything a results directory has to show.

    bazel run //plotting:crossover -- results/runs/X [--out DIR] [--formats svg,pdf,png]

Writes plots/, tables/ and report.html into the directory (or into --out). The
same rows give the same bytes. Exit codes: 0 drawn, 2 usage or unreadable input.
"""

import argparse
import os
import sys

from plotting import claims
from plotting import law
from plotting import layers
from plotting import memory
from plotting import ratio_maps
from plotting import report
from plotting import results as results_lib
from plotting import roofline
from plotting import style
from plotting import tables
from plotting import winner

FIGURES = (law.draw, ratio_maps.draw_peak, memory.draw, ratio_maps.draw_time,
           winner.draw, roofline.draw, layers.draw)


def judge(directory):
    """The verdicts that follow from the rows of `directory`."""
    return claims.judge(results_lib.load(directory))


def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    results = results_lib.load(directory)
    out = out or directory
    palette = style.Palette([*(row.variant for row in results.rows),
                             *(point.variant for point in results.crossovers)])
    plots = os.path.join(out, "plots")
    drawn = [figure for draw in FIGURES
             for figure in draw(results, palette, plots, formats)]
    paths = [path for figure in drawn for path in figure.paths]
    built = tables.build(results)
    paths += tables.write(built, os.path.join(out, "tables"))
    paths.append(report.write(results, palette, drawn, built,
                              os.path.join(out, "report.html")))
    return paths


def _formats(text):
    formats = tuple(dict.fromkeys(text.split(",")))
    unknown = [name for name in formats if name not in style.FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown format {unknown[0]!r}; there are {', '.join(style.FORMATS)}")
    if not {"svg", "png"} & set(formats):
        raise argparse.ArgumentTypeError("the report needs svg or png among the formats")
    return formats


def main(argv):
    parser = argparse.ArgumentParser(
        prog="crossover", description="Draws a results directory: plots, tables, report.")
    parser.add_argument("directory", help="what a run has written, with results.csv")
    parser.add_argument("--out", help="where to write (default: the directory itself)")
    parser.add_argument("--formats", type=_formats, default=style.FORMATS,
                        help="of the plots, comma separated (default: svg,pdf,png)")
    try:
        flags = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code
    here = os.environ.get("BUILD_WORKING_DIRECTORY", "")
    directory = os.path.join(here, flags.directory)
    out = os.path.join(here, flags.out) if flags.out else directory
    try:
        paths = draw_all(directory, out, flags.formats)
    except results_lib.ResultsError as error:
        print(f"crossover: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"crossover: {error.filename or out} could not be read or written: "
              f"{error.strerror}.", file=sys.stderr)
        return 2
    print(f"{len(paths)} files; open {paths[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
