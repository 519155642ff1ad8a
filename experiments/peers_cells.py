"""What //experiments:peers measures and writes: its cells, and their rows of results.csv."""

import csv
import dataclasses
import math
import os
import re
import statistics

from plotting import results

BASELINE = "dense"
_ELEMENT_BYTES = 4  # float32

_CELL = re.compile(
    r"linear/[^/]+/(?P<shape>[0-9x]+:[0-9x]+)/r(?P<ranks>[0-9x]+)/b(?P<batch>\d+)/"
    r"(?P<phase>[a-z-]+)/(?P<dtype>[a-z0-9]+)/(?P<device>[a-z]+)/t(?P<threads>\d+)"
    r"(?:  skipped: (?P<skipped>.*))?$")


class CellError(Exception):
    """A cell that cannot be compared here; the message is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One layer, batch and phase; every side runs it."""

    in_modes: tuple
    out_modes: tuple
    ranks: tuple  # Ones at both ends.
    batch: int
    phase: str
    threads: int
    skip_reason: str = ""

    @property
    def shape(self):
        return f"{_times(self.in_modes)}:{_times(self.out_modes)}"

    @property
    def rank_label(self):
        inner = self.ranks[1:-1]
        return str(inner[0]) if len(set(inner)) == 1 else _times(inner)

    def name(self, side):
        """The name of a side's row, in the grammar of the suite: dense has no ranks."""
        rank = "" if side == BASELINE else f"/r{self.rank_label}"
        return (f"linear/{side}/{self.shape}{rank}/b{self.batch}/{self.phase}/float32/cpu/"
                f"t{self.threads}")

    def repro(self, side):
        # Ranks that the shape does not admit are clipped again.
        return (f"bazel run //experiments:peers -- --variant={side} --shape={self.shape} "
                f"--rank={max(self.ranks)} --batch={self.batch} --phase={self.phase} "
                f"--threads={self.threads}")


def _times(numbers):
    return "x".join(map(str, numbers))


def _numbers(text):
    return tuple(int(number) for number in text.split("x"))


def parse_plan(text):
    """The cells in what `sweep --list` printed for one variant of cores."""
    cells = []
    for line in text.splitlines():
        start = line.find("linear/")
        if start < 0:
            continue
        match = _CELL.match(line[start:])
        if not match:
            raise CellError(f"'{line[start:]}' is no cell of a TT layer")
        if match["phase"] not in ("inference", "train"):
            raise CellError(f"--phase={match['phase']}: peers are compared in inference and train")
        if match["dtype"] != "float32" or match["device"] != "cpu":
            raise CellError("peers are compared in float32 on the CPU; leave out --dtype and "
                            "--device")
        in_modes, out_modes = map(_numbers, match["shape"].split(":"))
        inner = _numbers(match["ranks"])
        if len(inner) == 1:
            inner *= len(in_modes) - 1
        cells.append(Cell(in_modes, out_modes, (1, *inner, 1), int(match["batch"]),
                          match["phase"], int(match["threads"]), match["skipped"] or ""))
    return list(dict.fromkeys(cells))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one side of a cell."""

    status: str
    reason: str = ""
    algorithm: str = ""
    figures: dict = dataclasses.field(default_factory=dict)  # Columns in bytes, and the error.
    samples: tuple = ()  # ns of one iteration, one of each round.
    iterations: int | None = None
    stop_reason: str = ""


def build_row(cell, side, outcome, baseline, seed, written_by):
    """The fields of a side's row, by column; what was not measured is missing.

    `baseline` is the Outcome of the dense layer in the same cell, or None.
    """
    row = {"schema": results.SCHEMA, "experiment": written_by, "cell": cell.name(side),
           "family": "linear", "variant": side, "algorithm": outcome.algorithm,
           "baseline": int(side == BASELINE), "in_modes": _times(cell.in_modes),
           "out_modes": _times(cell.out_modes), "cores": len(cell.in_modes),
           "batch": cell.batch, "phase": cell.phase, "dtype": "float32", "device": "cpu",
           "threads": cell.threads, "seed": seed, "status": outcome.status,
           "reason": outcome.reason, "repro": cell.repro(side)}
    if len(set(cell.in_modes + cell.out_modes)) == 1:
        row["d"] = cell.in_modes[0]
    if side != BASELINE:
        row["ranks"] = _times(cell.ranks)
        if len(set(cell.ranks[1:-1])) == 1:
            row["rank"] = cell.ranks[1]
    row |= outcome.figures
    if "weight_bytes" in row:
        row["parameters"] = row["weight_bytes"] // _ELEMENT_BYTES
    peak = outcome.figures.get("peak_bytes")
    base_peak = baseline.figures.get("peak_bytes") if baseline else None
    if outcome.status == "ok" and peak and base_peak:
        row["peak_ratio_to_dense"] = peak / base_peak
    if outcome.samples:
        row |= {"time_ns": statistics.median(outcome.samples),
                "time_min_ns": min(outcome.samples), "iterations": outcome.iterations,
                "repetitions": len(outcome.samples), "stop_reason": outcome.stop_reason}
        if len(outcome.samples) > 1:
            low, _, high = statistics.quantiles(outcome.samples, n=4, method="inclusive")
            row["time_spread"] = (high - low) / row["time_ns"]
        if baseline and baseline.samples:
            row["time_ratio_to_dense"] = statistics.median(
                mine / base for mine, base in zip(outcome.samples, baseline.samples, strict=True))
    return row


class RowWriter:
    """Appends rows to results.csv, each on its way to disk when append() returns."""

    def __init__(self, directory):
        self._file = open(os.path.join(directory, "results.csv"), "x", encoding="utf-8",
                          newline="")
        self._writer = csv.writer(self._file)
        self._write(results.COLUMNS)

    def append(self, row):
        unknown = set(row) - set(results.COLUMNS)
        if unknown:
            raise ValueError(f"no columns of results.csv: {', '.join(sorted(unknown))}")
        self._write([_text(row.get(column)) for column in results.COLUMNS])

    def _write(self, fields):
        self._writer.writerow(fields)
        self._file.flush()
        os.fsync(self._file.fileno())


def _text(value):
    if value is None or isinstance(value, float) and not math.isfinite(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
