"""Two sides of runs that were written from closed formulas."""

import dataclasses

import pytest

from benchmarks import compare
from plotting import results as results_lib
from plotting import synthetic

CUBE = [8, 8, 8]
RANKS = [1, 4, 4, 1]


def _run(directory, run=synthetic.RUN, **changes):
    """dense, sequential at two ranks and fused, at two batches; `changes` are of fused."""
    rows = []
    for batch in (64, 512):
        rows.append(synthetic.row("dense", CUBE, CUBE, RANKS, batch, "train"))
        for rank in (2, 4):
            rows.append(synthetic.row("sequential", CUBE, CUBE, [1, rank, rank, 1], batch, "train"))
        rows.append(dataclasses.replace(
            synthetic.row("fused", CUBE, CUBE, RANKS, batch, "train"), **changes))
    synthetic.write(directory, rows, None, run)
    return results_lib.load(directory)


def test_ratios_are_second_over_first(tmp_path):
    first = _run(tmp_path / "a", peak_bytes=1000, time_ratio_to_dense=0.5)
    second = _run(tmp_path / "b", peak_bytes=1500, time_ratio_to_dense=0.25)
    pairs = compare.pair_runs(first, second, True)
    assert len(pairs) == 8
    for pair in pairs:
        if pair.group == "fused":
            assert (pair.time, pair.peak, pair.held, pair.flops) == (0.5, 1.5, 1, 1)
        else:
            assert pair.peak == 1 and pair.time == (None if pair.group == "dense" else 1)


def test_variants_pair_by_layer_rank_and_batch_and_dense_with_every_rank(tmp_path):
    run = _run(tmp_path / "a")
    both = compare.pair_variants(run, ["sequential", "fused"])
    assert [pair.group for pair in both] == ["8x8x8 → 8x8x8, r 4"] * 2
    rows = {(row.variant, row.rank, row.batch): row for row in run.rows}
    assert both[1].peak == (rows["fused", 4, 512].peak_bytes
                            / rows["sequential", 4, 512].peak_bytes)
    assert both[1].time == pytest.approx(rows["fused", 4, 512].time_ratio_to_dense
                                         / rows["sequential", 4, 512].time_ratio_to_dense)
    dense = compare.pair_variants(run, ["dense", "sequential"])
    assert len(dense) == 4
    assert dense[0].time == rows["sequential", 2, 64].time_ratio_to_dense


def test_table_and_figure_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    _run(tmp_path / "a")
    _run(tmp_path / "b", peak_bytes=10 ** 9)
    assert compare.main(["a", "b", "--out=out"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("b over a. 8 cells")
    assert "fused" in printed[2] and "fused" in printed[3]  # The largest change first.
    assert printed[-1] == str(tmp_path / "out")
    for kind in ("svg", "pdf", "png", "md"):
        assert (tmp_path / "out" / f"compare.{kind}").stat().st_size > 500


def test_times_of_different_machines_are_not_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    _run(tmp_path / "a")
    _run(tmp_path / "b", run={**synthetic.RUN, "libtorch": "3.0"})
    assert compare.main(["a", "b", "--out=out"]) == 0
    printed = capsys.readouterr().out
    assert "times are not compared" in printed and "cells: time" not in printed
    assert "8 cells: peak memory 1.00" in printed


@pytest.mark.parametrize("arguments, code, words", [
    (["a", "--variants=fused,nothing"], 3, "no variant nothing; it has dense, sequential, fused"),
    (["a", "nowhere"], 2, "There is no directory"),
    (["a", "other"], 3, "No cell ended ok on both sides"),
])
def test_what_cannot_be_compared_is_said(tmp_path, monkeypatch, capsys, arguments, code, words):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    _run(tmp_path / "a")
    synthetic.write(tmp_path / "other", [synthetic.row("dense", CUBE, CUBE, RANKS, 7, "train")])
    assert compare.main([*arguments, "--out=out"]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["a"], ["a", "b", "--variants=x,y"],
                                       ["a", "--variants=x"], ["a", "--variants=x,x"]])
def test_bad_flags_are_refused(arguments):
    with pytest.raises(SystemExit) as stopped:
        compare.main(arguments)
    assert stopped.value.code == 2
