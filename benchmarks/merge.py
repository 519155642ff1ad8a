"""Merges runs: the shards of one sweep, or the runs of several machines.

    bazel run //benchmarks:merge -- --out=DIR A B ...

The merged directory has every row of results.csv, crossover.csv and crossover_probes.csv, and a
run.json whose `parts` are those of the runs. A cell that two runs have is refused, with where it
is, unless all but one of them skipped it. Rates of calibration.csv are kept where all runs are of one machine: of a layer that several
runs calibrated, those of the first.
"""

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import sys

from benchmarks import exact
from plotting import results as results_lib

_USAGE = 2
# What run.json says of a machine; kept at the top where all parts agree, as plots read it there.
_OF_THE_MACHINE = ("machine", "libtorch", "gemm_library", "cuda", "gpu")


class MergeError(Exception):
    """Why nothing was merged, in a sentence for the user."""


def user_path(path):
    """A path as the user meant it: relative to where they stand, which `bazel run` leaves."""
    return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path).resolve()


def merge(directories, out):
    """Writes the runs in `directories` as one into `out`; returns notes. Raises MergeError."""
    out = pathlib.Path(out)
    if (out / "results.csv").exists():
        raise MergeError(f"{out} already holds a run; name another directory.")
    if len({pathlib.Path(directory).resolve() for directory in directories}) < len(directories):
        raise MergeError("One directory is named twice; name each once.")
    parts = [results_lib.load(os.fspath(directory)) for directory in directories]
    rows = _unique(parts, lambda part: part.rows, "results.csv",
                   lambda row: row.cell, lambda part, row: f"line {part.lines[row.cell]} of "
                                                          f"{part.directory}/results.csv")
    crossovers = _unique(parts, lambda part: part.crossovers, "crossover.csv", _search,
                         lambda part, _: f"{part.directory}/crossover.csv")
    # Searches of two shards may probe the dense layer at the same batches: bytes are bytes.
    probes = list({row.cell: row for part in parts for row in part.probes}.values())
    notes = [f"{part.directory}: {note}" for part in parts for note in part.notes]

    calibration, more_notes = _merge_calibration(parts)
    notes += more_notes
    out.mkdir(parents=True, exist_ok=True)
    if calibration:
        _write_lines(out / "calibration.csv", calibration)
    _write(out / "run.json", json.dumps(_merge_info(parts, notes), indent=2) + "\n")
    _write_table(out / "results.csv", results_lib.COLUMNS, rows)
    if any(part.has_crossover_file for part in parts):
        _write_table(out / "crossover.csv", results_lib.CROSSOVER_COLUMNS, crossovers)
        _write_table(out / "crossover_probes.csv", results_lib.COLUMNS, probes)
    return notes


def _search(point):
    return (point.variant, point.phase, point.metric, point.in_modes, point.out_modes, point.ranks,
            point.dtype)


def _unique(parts, rows_of, table, key_of, place):
    """The rows of all parts; raises MergeError where two have the same key.

    Of a cell that was skipped in one run and not in another, the other's.
    """
    found, origins = {}, {}
    for part in parts:
        for row in rows_of(part):
            key = key_of(row)
            if key in found and _skipped(row):
                continue
            if key in found and not _skipped(found[key]):
                name = key if isinstance(key, str) else "/".join(key)
                raise MergeError(f"{name} is twice in the {table} files: in {origins[key]} and in "
                                 f"{place(part, row)}; leave one of the runs out.")
            found[key], origins[key] = row, place(part, row)
    return list(found.values())


def _skipped(row):
    return getattr(row, "status", "") == "skipped"


def _infos(parts):
    """run.json of all parts; merging what was merged keeps one list."""
    return [{"directory": part.directory, **info} for part in parts
            for info in part.run.get("parts") or [part.run]]


def _of_one_machine(infos):
    return not any(exact.difference_of_machines(infos[0], info) for info in infos[1:])


# What a rate of calibration.csv is of; time_ns and gflops follow.
_CALIBRATED = ("in_modes", "out_modes", "ranks", "phase", "dtype", "threads")


def _merge_calibration(parts):
    """(lines of the merged calibration.csv, header first, or none; notes)."""
    lines, layers, twice = [], {}, set()
    for part in parts:
        path = pathlib.Path(part.directory, "calibration.csv")
        if not path.is_file():
            continue
        with open(path, encoding="utf-8", newline="") as file:
            header, *records = [*csv.reader(file)] or [[]]
        if not header:
            continue
        if lines and header != lines[0]:
            return [], [f"{path} has other columns than the others: no calibration.csv was written."]
        lines = lines or [header]
        for record in records:
            layer = tuple(record[header.index(name)] for name in _CALIBRATED)
            if layers.setdefault(layer, part.directory) == part.directory:
                lines.append(record)
            else:
                twice.add(layer)
    if lines and not _of_one_machine(_infos(parts)):
        return [], ["The runs are of several machines: no calibration.csv was written."]
    return lines, [f"Layers calibrated in more than one run: {len(twice)}; the rates of the first "
                   "are kept, and `auto` may have picked otherwise in another."] * bool(twice)


def _merge_info(parts, notes):
    infos = _infos(parts)
    merged = {}
    if _of_one_machine(infos):
        merged = {key: infos[0][key] for key in _OF_THE_MACHINE if key in infos[0]}
    for key in ("experiment", "git_revision", "fma_peak_gflops", "bandwidth_gb_per_s"):
        values = [info.get(key) for info in infos]
        if values[0] is not None and values.count(values[0]) == len(values):
            merged[key] = values[0]
    warnings = dict.fromkeys(warning for info in infos for warning in info.get("warnings", ()))
    return {**merged, "command": "merged by //benchmarks:merge", "warnings": list(warnings),
            "notes": notes, "parts": infos}


def _write_table(path, columns, rows):
    _write_lines(path, [columns, *(["" if value is None else value
                                    for value in dataclasses.astuple(row)] for row in rows)])


def _write_lines(path, lines):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows(lines)


def _write(path, text):
    path.write_text(text, encoding="utf-8")


def main(argv):
    parser = argparse.ArgumentParser(prog="merge", allow_abbrev=False,
                                     description="Merges runs into one directory.")
    parser.add_argument("directories", nargs="+", metavar="DIR",
                        help="runs: shards of one sweep, or of several machines")
    parser.add_argument("--out", required=True, help="directory to write, without a run in it")
    flags = parser.parse_args(argv)
    out = user_path(flags.out)
    try:
        notes = merge([user_path(directory) for directory in flags.directories], out)
    except (MergeError, results_lib.ResultsError) as error:
        print(f"merge: {error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"merge: {error.filename} could not be read or written: {error.strerror}.",
              file=sys.stderr)
        return 4
    for note in notes:
        print(f"note: {note}")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
