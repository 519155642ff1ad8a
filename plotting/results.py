"""Reads a results directory: results.csv, crossover.csv, its probes and run.json.

A field that was not measured is None, never NaN, and byte counts stay exact
integers. Whatever is read around (a torn last line, a cell that was run twice,
a missing file) leaves a note, which the report shows.
"""

import csv
import dataclasses
import functools
import io
import json
import math
import os
import typing

SCHEMA = 1


class ResultsError(Exception):
    """The directory cannot be read; the message is one sentence for the user."""


class SchemaError(ResultsError):
    """Its columns are not those of this version."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One cell of a sweep; the fields are the columns of results.csv, in order."""

    schema: int
    experiment: str
    cell: str
    family: str
    variant: str
    algorithm: str
    baseline: int | None
    in_modes: str
    out_modes: str
    ranks: str
    cores: int | None
    d: int | None
    rank: int | None
    source_len: int | None
    target_len: int | None
    hidden: int | None
    layers: int | None
    batch: int | None
    phase: str
    dtype: str
    device: str
    threads: int | None
    seed: int | None
    status: str
    reason: str
    parameters: int | None
    weight_bytes: int | None
    weight_bytes_model: int | None
    held_bytes: int | None
    held_bytes_model: int | None
    forward_peak_bytes: int | None
    forward_peak_bytes_model: int | None
    backward_peak_bytes: int | None
    backward_peak_bytes_model: int | None
    step_peak_bytes: int | None
    step_peak_bytes_model: int | None
    peak_bytes: int | None
    peak_bytes_model: int | None
    rss_peak_bytes: int | None
    reserved_bytes: int | None
    flops_model: int | None
    time_ns: float | None
    time_min_ns: float | None
    time_spread: float | None
    iterations: int | None
    repetitions: int | None
    stop_reason: str
    gflops: float | None
    fraction_of_peak: float | None
    time_ratio_to_dense: float | None
    peak_ratio_to_dense: float | None
    max_relative_error: float | None
    repro: str

    @property
    def ok(self):
        return self.status == "ok"

    @property
    def conditions(self):
        """What a figure must never mix."""
        return Conditions(self.device, self.dtype, self.threads)

    @property
    def shape(self):
        """The layer that every variant of it shares with its dense baseline."""
        return (self.family, self.in_modes, self.out_modes, self.source_len,
                self.target_len, self.hidden, self.layers)


class Conditions(typing.NamedTuple):
    device: str
    dtype: str
    threads: int | None

    @property
    def name(self):
        threads = "" if self.threads is None else f"-t{self.threads}"
        return f"{self.dtype}-{self.device}{threads}"

    @property
    def words(self):
        count = "" if self.threads is None else (
            f", {self.threads} thread{'' if self.threads == 1 else 's'}")
        return f"{self.dtype}, {self.device}{count}"


@dataclasses.dataclass(frozen=True)
class Crossover:
    """A line of crossover.csv: where a variant starts to need more than dense.

    `metric` is `held` (weights and what the backward holds, phase train) or
    `peak`; `verdict` is measured, always, never or beyond.
    """

    schema: int
    experiment: str
    variant: str
    phase: str
    metric: str
    in_modes: str
    out_modes: str
    ranks: str
    cores: int | None
    d: int | None
    rank: int | None
    dtype: str
    crossover_batch: int | None
    crossover_batch_model: int | None
    claim_batch: int | None
    k: float | None
    verdict: str
    probes: int | None


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
CROSSOVER_COLUMNS = tuple(field.name for field in dataclasses.fields(Crossover))


@dataclasses.dataclass(frozen=True)
class Results:
    directory: str
    rows: tuple
    crossovers: tuple
    has_crossover_file: bool
    run: dict
    notes: tuple
    lines: dict  # cell name -> line of results.csv it was read from
    probes: tuple = ()  # rows of crossover_probes.csv: memory alone, at other batches

    @functools.cached_property
    def baselines(self):
        """The baseline row for each (shape, batch, phase, conditions)."""
        found = {}
        for row in self.rows:
            if row.baseline:
                found[(row.shape, row.batch, row.phase, row.conditions)] = row
        return found

    def baseline(self, row):
        return self.baselines.get(
            (row.shape, row.batch, row.phase, row.conditions))

    def peak_ratio(self, row):
        """Peak bytes against the baseline's; from the bytes where both are there."""
        return self._ratio(row, "peak_bytes", "peak_ratio_to_dense")

    def time_ratio(self, row):
        """Median time against the baseline's, as measured interleaved."""
        return (row.time_ratio_to_dense or None) if row.ok else None

    def _ratio(self, row, column, fallback):
        if not row.ok:
            return None
        base = self.baseline(row)
        mine = getattr(row, column)
        if base is not None and base.ok and mine and getattr(base, column):
            return mine / getattr(base, column)
        return getattr(row, fallback) or None


def load(directory):
    """Reads `directory`; raises ResultsError with one clear sentence."""
    if not os.path.isdir(directory):
        raise ResultsError(f"There is no directory {directory}; give one that "
                           "a run has written, such as results/runs/<name>.")
    path = os.path.join(directory, "results.csv")
    if not os.path.isfile(path):
        raise ResultsError(f"{directory} holds no results.csv, so it is not the "
                           "directory of a run.")
    notes = []
    rows, lines = {}, {}
    for line, row in read_table(path, Row, notes):
        if row.cell in rows:
            notes.append(f"results.csv has the cell {row.cell} more than once; "
                         "the last one counts.")
            del rows[row.cell]
        rows[row.cell] = row
        lines[row.cell] = line
    crossover_path = os.path.join(directory, "crossover.csv")
    has_crossovers = os.path.isfile(crossover_path)
    crossovers = ([row for _, row in read_table(crossover_path, Crossover, notes)]
                  if has_crossovers else [])
    probes_path = os.path.join(directory, "crossover_probes.csv")
    probes = ([row for _, row in read_table(probes_path, Row, notes)]
              if os.path.isfile(probes_path) else [])
    return Results(directory, tuple(rows.values()), tuple(crossovers), has_crossovers,
                   read_run(directory, notes), tuple(notes), lines, tuple(probes))


def load_table(directory, name, kind):
    """(rows, run.json, notes) of an experiment that writes a file of its own.

    `kind` is a dataclass whose fields are the columns of the file `name`. Raises ResultsError.
    """
    path = os.path.join(directory, name)
    if not os.path.isfile(path):
        raise ResultsError(f"{directory} holds no {name}, so it is not the directory of such a "
                           "run.")
    notes = []
    rows = tuple(row for _, row in read_table(path, kind, notes))
    return rows, read_run(directory, notes), tuple(notes)


def read_run(directory, notes):
    """run.json; empty where it is not as a run leaves it, which `notes` then says."""
    path = os.path.join(directory, "run.json")
    try:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        if isinstance(run, dict):
            return run
        notes.append("run.json is not an object and was not used.")
    except FileNotFoundError:
        notes.append("run.json is missing, so the machine and the command are "
                     "not known.")
    except ValueError as error:
        notes.append(f"run.json could not be read ({error}).")
    return {}


def read_table(path, kind, notes):
    """Yields (line number, row) for each whole record of an RFC 4180 file.

    `kind` is a dataclass whose fields are the columns; sentences about what was read around are
    added to `notes`. Raises ResultsError.
    """
    name = os.path.basename(path)
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    fields = dataclasses.fields(kind)
    reader = csv.reader(io.StringIO(text, newline=""))
    records = []
    line = 1
    for record in reader:
        records.append((line, record))
        line = reader.line_num + 1
    if not records:
        raise ResultsError(f"{name} is empty: not even its header was written.")
    header = records.pop(0)[1]
    columns = [field.name for field in fields]
    if not records and not text.endswith("\n") and header != columns:
        raise ResultsError(f"{name} ends within its header, before the first row: the run was "
                           "stopped as it began; run it again.")
    if header[:1] == ["schema"] and records and records[0][1]:
        written = records[0][1][0]
        if written.isdecimal() and int(written) > SCHEMA:
            raise SchemaError(f"{name} was written by a newer version, with schema {written}; this "
                              f"one reads up to schema {SCHEMA}: use the revision that wrote it, "
                              "which its run.json names.")
    if header != columns:
        unknown = sorted(set(header) - set(columns))
        missing = [column for column in columns if column not in header]
        what = "; ".join(filter(None, [
            unknown and "unknown: " + ", ".join(unknown),
            missing and "missing: " + ", ".join(missing)])) or "other order"
        raise SchemaError(f"The columns of {name} are not those of schema "
                          f"{SCHEMA} ({what}); use the revision that wrote it.")
    if records and not text.endswith("\n"):
        torn_line, _ = records.pop()
        notes.append(f"The last line of {name} (line {torn_line}) was cut short "
                     "while it was written; everything before it was read.")
    for line, record in records:
        if not record:
            continue
        if len(record) != len(columns):
            raise ResultsError(f"Line {line} of {name} has {len(record)} fields "
                               f"where {len(columns)} belong.")
        if record[0] != str(SCHEMA):
            raise SchemaError(f"Line {line} of {name} has schema {record[0]!r}; "
                              f"only schema {SCHEMA} can be read here.")
        yield line, kind(**{
            field.name: _parse(field.type, value, field.name, line, name, notes)
            for field, value in zip(fields, record)})


def _parse(kind, text, column, line, name, notes):
    if kind is str:
        return text
    if text == "":
        return None
    try:
        if kind in (int, int | None):
            return int(text)
        value = float(text)
    except ValueError:
        raise ResultsError(f"Line {line} of {name} has {text!r} in column "
                           f"{column}, which is not a number.") from None
    if not math.isfinite(value):
        notes.append(f"Line {line} of {name} has {text} in column {column}; it "
                     "counts as not measured.")
        return None
    return value
