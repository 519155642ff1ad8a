import dataclasses
import os
import sys

import pytest

from plotting import analysis
from plotting import results
from plotting import synthetic

CUBE = [16, 16, 16]
RANKS = [1, 8, 8, 1]


@pytest.fixture
def directory(tmp_path):
    rows = [synthetic.row(variant, CUBE, CUBE, RANKS, batch, "train")
            for batch in (1, 512) for variant in ("dense", "sequential")]
    synthetic.write(tmp_path, rows, [], synthetic.RUN)
    return tmp_path


def _edit(directory, change, name="results.csv"):
    path = os.path.join(directory, name)
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(change(text))


def test_columns_are_those_of_the_design():
    assert len(results.COLUMNS) == 53
    assert results.COLUMNS[:7] == ("schema", "experiment", "cell", "family", "variant",
                                   "algorithm", "baseline")
    assert results.COLUMNS[-2:] == ("max_relative_error", "repro")


def test_reads_exact_integers_and_leaves_the_unmeasured_out(directory):
    read = results.load(directory)
    dense, sequential = read.rows[2:]
    assert dense.weight_bytes == 4 * 16 ** 6
    assert dense.rank is None and dense.ranks == ""
    # x, two intermediates of r B d^3 and the permuted cores, in float32.
    assert sequential.held_bytes == 4 * (512 * 16 ** 3 * (2 * 8 + 1) + 16 ** 2 * 80)
    assert sequential.step_peak_bytes is None
    assert read.baseline(sequential) is dense
    assert read.notes == ()
    assert read.lines[dense.cell] == 4


def test_peak_ratio_is_that_of_the_bytes(directory):
    read = results.load(directory)
    dense, sequential = read.rows[2:]
    assert read.peak_ratio(sequential) == sequential.peak_bytes / dense.peak_bytes


def test_a_torn_last_line_is_left_out_with_a_note(directory):
    _edit(directory, lambda text: text[:-40])
    read = results.load(directory)
    assert len(read.rows) == 3
    assert "line 5" in read.notes[0] and "cut short" in read.notes[0]


def test_a_file_torn_anywhere_is_read_up_to_the_tear(directory):
    path = os.path.join(directory, "results.csv")
    with open(path, "rb") as file:
        whole = file.read()
    before = results.load(directory).rows
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(ends[0], len(whole) + 1):
        with open(path, "wb") as file:
            file.write(whole[:length])
        read = results.load(directory)
        assert read.rows == before[:sum(end <= length for end in ends) - 1], length
        assert bool(read.notes) == (length not in ends), length


def test_a_tear_within_a_quoted_field_is_left_out_too(directory):
    _edit(directory, lambda text: text + '1,crossover,"linear/dense')
    read = results.load(directory)
    assert len(read.rows) == 4 and len(read.notes) == 1


def test_the_last_of_a_cell_run_twice_counts(directory):
    again = synthetic.row("dense", CUBE, CUBE, RANKS, 1, "train", status="oom")
    rows = list(results.load(directory).rows)
    synthetic.write(directory, [*rows, again])
    read = results.load(directory)
    assert len(read.rows) == 4 and read.rows[-1].status == "oom"
    assert "more than once" in read.notes[0]


@pytest.mark.parametrize("change, words", [
    (lambda text: text.replace("held_bytes,", "kept_bytes,", 1), "unknown: kept_bytes"),
    (lambda text: text.replace("\n1,", "\n2,", 1),
     "newer version, with schema 2; .* up to schema 1"),
    (lambda text: text.replace("repro\r\n1,", "repro,joules\r\n2,", 1),
     "newer version, with schema 2"),
    (lambda text: text.replace("\n1,", "\none,", 1), "schema 'one'"),
    (lambda text: text[:100], "ends within its header"),
    (lambda text: text.replace(",512,train", ",many,train", 1), "column batch"),
    (lambda text: text.replace("\n1,", "\n1,more,", 1), "54 fields where 53"),
    (lambda text: "", "empty"),
])
def test_what_cannot_be_read_is_named(directory, change, words):
    _edit(directory, change)
    with pytest.raises(results.ResultsError, match=words):
        results.load(directory)


def test_nan_counts_as_not_measured(tmp_path):
    row = synthetic.row("dense", CUBE, CUBE, RANKS, 1, "train")
    synthetic.write(tmp_path, [dataclasses.replace(row, gflops=float("nan"))], run={})
    read = results.load(tmp_path)
    assert read.rows[0].gflops is None and "column gflops" in read.notes[0]


def test_missing_files_are_told_apart(tmp_path):
    with pytest.raises(results.ResultsError, match="no directory"):
        results.load(os.path.join(tmp_path, "nowhere"))
    with pytest.raises(results.ResultsError, match="no results.csv"):
        results.load(tmp_path)


def test_run_json_and_crossover_csv_may_be_missing(tmp_path):
    synthetic.write(tmp_path, [synthetic.row("dense", CUBE, CUBE, RANKS, 1, "train")])
    read = results.load(tmp_path)
    assert read.run == {} and not read.has_crossover_file
    assert "run.json is missing" in read.notes[0]


def test_crossovers_without_crossover_csv_are_ranges_of_the_cells(tmp_path):
    rows, _ = synthetic.sweep(ds=(16,), ranks=(8,), batches=(64, 256, 1024),
                              variants=("sequential", "fused", "naive"))
    synthetic.write(tmp_path, rows)
    found = {(c.variant, c.phase, c.metric): c
             for c in analysis.crossings(results.load(tmp_path))}
    # 2Br = d^3 less the cores' two copies: exactly B = 256 (see claims_test).
    held = found["sequential", "train", "held"]
    assert (held.verdict, held.low, held.high) == ("bracketed", 64, 256)
    peak = found["sequential", "train", "peak"]
    assert (peak.low, peak.high) == (256, 1024)
    assert found["fused", "train", "peak"].verdict == "beyond"
    always = found["naive", "train", "held"]
    assert (always.low, always.high) == (None, 64)


def test_dense_rows_belong_to_their_cube_even_without_d(tmp_path):
    rows, _ = synthetic.sweep(ds=(8,), ranks=(2, 4), batches=(1, 64),
                              variants=("sequential",))
    synthetic.write(tmp_path, [dataclasses.replace(row, d=None, cores=None)
                               if row.rank is None else row for row in rows])
    (key, members), = analysis.mapped(results.load(tmp_path)).items()
    assert (key.cores, key.d) == (3, 8)
    assert len(members) == len(rows)


def test_figures_of_one_file_do_not_mix_conditions(tmp_path):
    rows = []
    for options in ({"dtype": "float64"}, {"threads": 1}, {}):
        rows += synthetic.sweep(ds=(8,), ranks=(2, 4), batches=(1, 64),
                                variants=("sequential",), **options)[0]
    synthetic.write(tmp_path, rows)
    groups = analysis.mapped(results.load(tmp_path))
    assert [key.conditions.name for key in groups] == [
        "float32-cpu-t1", "float32-cpu-t2", "float64-cpu-t2"]
    for key, members in groups.items():
        assert {row.conditions for row in members} == {key.conditions}


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
