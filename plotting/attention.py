"""Draws the attention experiment: plots, tables and report of a results directory.

    bazel run //plotting:attention -- results/runs/X

terms.csv and buffers.csv, from `bazel run //benchmarks:inventory -- DIR`, say what the bytes are;
without them their figures are left out.
"""

import os
import sys

from plotting import attention_claims
from plotting import attention_figures
from plotting import report
from plotting import results as results_lib
from plotting import style
from plotting import tables

INVENTORY = True  # Its figures say what the bytes are: terms.csv and buffers.csv.
_SECTIONS = (("steps", "Memory over the decoder's steps"), ("bytes", "What the bytes are"),
             ("ratios", "Every variant beside the first patch"),
             ("axes", "Memory and time over all axes"), ("decoder", "The whole decoder"))


def judge(directory):
    """The verdicts that follow from the rows of `directory`."""
    return attention_claims.judge(results_lib.load(directory))


def draw_all(directory, out=None, formats=style.FORMATS):
    """Draws `directory`; returns the paths written, report.html last.

    Raises results.ResultsError where the directory cannot be read.
    """
    results = results_lib.load(directory)
    out = out or directory
    palette = style.Palette([row.variant for row in results.rows], style.ATTENTION)
    plots = os.path.join(out, "plots")
    drawn = attention_figures.draw(results, palette, plots, formats)
    drawn += attention_figures.decoder_figure(attention_claims.decoder(results), plots, formats)
    paths = [path for figure in drawn for path in figure.paths]
    built = attention_claims.build(results)
    paths += tables.write(built, os.path.join(out, "tables"))
    page = report.Page("a decoder's attention, cloned once per step, and what is done today",
                       attention_claims.answer(results), attention_claims.judge(results),
                       _SECTIONS, "//plotting:attention")
    paths.append(report.write(results, palette, drawn, built, os.path.join(out, "report.html"),
                              page))
    return paths


if __name__ == "__main__":
    sys.exit(report.draw_main("attention", draw_all, sys.argv[1:]))
