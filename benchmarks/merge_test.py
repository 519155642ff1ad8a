"""Merging runs that were written from closed formulas."""

import dataclasses
import json
import os

import pytest

from benchmarks import merge
from plotting import results as results_lib
from plotting import synthetic

CUBE = [8, 8, 8]
RANKS = [1, 4, 4, 1]


def _run(directory, batches, run=synthetic.RUN, crossovers=None):
    rows = [synthetic.row(variant, CUBE, CUBE, RANKS, batch, "train")
            for batch in batches for variant in ("dense", "sequential")]
    synthetic.write(directory, rows, crossovers, run)
    return directory


def test_rows_of_all_parts_and_run_json_of_each(tmp_path):
    a = _run(tmp_path / "a", (1, 64), {**synthetic.RUN, "flags": ["--shard=1/2"]},
             [synthetic.crossover("sequential", "train", "peak", 8, 4)])
    b = _run(tmp_path / "b", (512,), {**synthetic.RUN, "flags": ["--shard=2/2"],
                                      "warnings": ["busy"]}, [])
    assert merge.merge([a, b], tmp_path / "out") == []
    out = results_lib.load(tmp_path / "out")
    assert out.rows == results_lib.load(a).rows + results_lib.load(b).rows
    assert len(out.crossovers) == 1 and out.notes == ()
    assert [part["flags"] for part in out.run["parts"]] == [["--shard=1/2"], ["--shard=2/2"]]
    assert [part["directory"] for part in out.run["parts"]] == [str(a), str(b)]
    assert out.run["machine"] == synthetic.RUN["machine"]
    assert "busy" in out.run["warnings"]


def test_machines_that_differ_are_kept_in_the_parts_alone(tmp_path):
    other = {**synthetic.RUN, "machine": {**synthetic.RUN["machine"], "cores": 64}}
    merge.merge([_run(tmp_path / "a", (1,)), _run(tmp_path / "b", (2,), other)], tmp_path / "out")
    run = results_lib.load(tmp_path / "out").run
    assert "machine" not in run
    assert [part["machine"]["cores"] for part in run["parts"]] == [2, 64]


def test_what_was_merged_merges_again(tmp_path):
    parts = [_run(tmp_path / name, (batch,)) for name, batch in (("a", 1), ("b", 2), ("c", 3))]
    merge.merge(parts[:2], tmp_path / "ab")
    merge.merge([tmp_path / "ab", parts[2]], tmp_path / "abc")
    run = results_lib.load(tmp_path / "abc").run
    assert [os.path.basename(part["directory"]) for part in run["parts"]] == ["a", "b", "c"]


def test_a_cell_in_two_parts_is_refused_with_where_it_is(tmp_path):
    a, b = _run(tmp_path / "a", (1, 64)), _run(tmp_path / "b", (512, 64))
    with pytest.raises(merge.MergeError) as error:
        merge.merge([a, b], tmp_path / "out")
    # The header, two rows of batch 1 (or 512), and then dense at 64.
    assert str(error.value).startswith("linear/dense/8x8x8:8x8x8/b64/train/float32/cpu/t2 is twice")
    for name in ("a", "b"):
        assert f"line 4 of {tmp_path / name}/results.csv" in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_a_cell_that_one_run_skipped_the_others_row_is_kept(tmp_path, order):
    ran = synthetic.row("sequential", CUBE, CUBE, RANKS, 64, "train")
    skipped = dataclasses.replace(ran, status="skipped", reason="too large", peak_bytes=None)
    for name, row in (("a", ran), ("b", skipped)):
        synthetic.write(tmp_path / name, [row], None, synthetic.RUN)
    merge.merge([tmp_path / name for name in order], tmp_path / "out")
    row, = results_lib.load(tmp_path / "out").rows
    assert row == ran


def test_a_search_in_two_parts_is_refused_too(tmp_path):
    point = [synthetic.crossover("sequential", "train", "peak", 8, 4)]
    parts = [_run(tmp_path / name, (batch,), crossovers=point)
             for name, batch in (("a", 1), ("b", 2))]
    with pytest.raises(merge.MergeError, match="sequential/train/peak.*twice.*crossover.csv"):
        merge.merge(parts, tmp_path / "out")


CALIBRATION = ["variant", "in_modes", "out_modes", "ranks", "phase", "dtype", "threads", "batch",
               "time_ns", "gflops"]


def _calibrate(directory, *rates):
    """Writes a rate of `fused` for each (rank, time)."""
    lines = [CALIBRATION, *(["fused", "8x8x8", "8x8x8", f"1x{rank}x{rank}x1", "train", "float32",
                             "2", "64", time, "1"] for rank, time in rates)]
    (directory / "calibration.csv").write_text(
        "".join(",".join(line) + "\r\n" for line in lines), encoding="utf-8")
    return lines[1:]


def test_rates_of_one_machine_are_kept_the_first_ones_of_a_layer(tmp_path):
    a, b = _run(tmp_path / "a", (1,)), _run(tmp_path / "b", (2,))
    first, second = _calibrate(a, ("4", "11"), ("8", "12")), _calibrate(b, ("4", "13"), ("2", "14"))
    (note,) = merge.merge([a, b], tmp_path / "out")
    assert note.startswith("Layers calibrated in more than one run: 1;")
    text = (tmp_path / "out" / "calibration.csv").read_text(encoding="utf-8")
    assert [line.split(",") for line in text.splitlines()] == [CALIBRATION, *first, second[1]]


def test_rates_of_several_machines_are_left_out(tmp_path):
    other = {**synthetic.RUN, "machine": {**synthetic.RUN["machine"], "cores": 64}}
    a, b = _run(tmp_path / "a", (1,)), _run(tmp_path / "b", (2,), other)
    _calibrate(a, ("4", "11"))
    (b / "calibration.csv").write_text("")
    (note,) = merge.merge([a, b], tmp_path / "out")
    assert note == "The runs are of several machines: no calibration.csv was written."
    assert not (tmp_path / "out" / "calibration.csv").exists()


def test_a_torn_part_is_merged_up_to_the_tear_with_a_note(tmp_path):
    a, b = _run(tmp_path / "a", (1,)), _run(tmp_path / "b", (2,))
    text = (a / "results.csv").read_bytes()
    (a / "results.csv").write_bytes(text[:-30])
    notes = merge.merge([a, b], tmp_path / "out")
    assert len(notes) == 1 and "cut short" in notes[0] and str(a) in notes[0]
    out = results_lib.load(tmp_path / "out")
    assert len(out.rows) == 3 and json.loads((tmp_path / "out/run.json").read_text())["notes"]


@pytest.mark.parametrize("arguments, words", [
    (["a", "a", "--out=new"], "named twice"),
    (["a", "--out=a"], "already holds a run"),
    (["a", "nowhere", "--out=new"], "There is no directory"),
])
def test_bad_input_is_a_usage_error(tmp_path, monkeypatch, capsys, arguments, words):
    _run(tmp_path / "a", (1,))
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert merge.main(arguments) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
