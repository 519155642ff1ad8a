import dataclasses
import os
import sys

import pytest

from plotting import analysis
from plotting import crossover
from plotting import results
from plotting import roofline
from plotting import style
from plotting import synthetic

CUBE, RANKS = [16, 16, 16], [1, 8, 8, 1]


def _row(variant, phase="inference", **options):
    return synthetic.row(variant, CUBE, CUBE, RANKS, 128, phase, **options)


def test_compulsory_bytes_are_those_of_the_layer():
    # B = 128, N = M = 4096: x and y are 128 * 4096 floats each, the cores 16^2 (8^2 + 2 * 8).
    assert analysis.layer_bytes(_row("fused")) == 4 * (2 * 128 * 4096 + 20480)
    assert analysis.layer_bytes(_row("dense")) == 4 * (2 * 128 * 4096 + 4096 ** 2)
    assert analysis.layer_bytes(_row("fused", dtype="float64")) == 8 * (
        2 * 128 * 4096 + 20480)
    # Every one of them has a gradient of its size.
    assert analysis.layer_bytes(_row("dense", "train")) == 8 * (
        2 * 128 * 4096 + 4096 ** 2)
    assert analysis.layer_bytes(_row("dense", "step-adam")) is None


def test_the_intensity_of_a_dense_product():
    # 2 B d^6 FLOPs over 4 (2 B d^3 + d^6) bytes: B / 2 / (1 + 2 B / d^3).
    assert roofline.intensity(_row("dense")) == pytest.approx(64 / (1 + 256 / 4096))


def test_roofs_come_from_the_run():
    run = {"fma_peak_gflops": {"float32/t2": 400.0, "float64/t2": 200.0},
           "bandwidth_gb_per_s": {"memory/t2": 40.0, "l2/t2": 300.0, "memory/t1": 30.0}}
    assert roofline.roofs_of(run, "float32", 2) == {"peak": 400.0, "memory": 40.0, "l2": 300.0}
    assert roofline.roofs_of(run, "float64", 2)["peak"] == 200.0
    assert roofline.roofs_of(run, "float32", 1) is None, "no FMA rate of one thread"
    assert roofline.roofs_of({**run, "bandwidth_gb_per_s": {}}, "float32", 2) is None
    del run["bandwidth_gb_per_s"]["l2/t2"]
    assert roofline.roofs_of(run, "float32", 2) == {"peak": 400.0, "memory": 40.0}
    assert roofline.roofs_of({}, "float32", 2) is None


def _drawn(tmp_path, rows, run):
    synthetic.write(tmp_path, rows, [], run)
    read = results.load(str(tmp_path))
    palette = style.Palette(row.variant for row in rows)
    return roofline.draw(read, palette, str(tmp_path / "plots"), ("svg",))


def test_a_panel_for_each_phase_and_thread_count(tmp_path):
    run = {"fma_peak_gflops": {"float32/t1": 200.0, "float32/t2": 400.0},
           "bandwidth_gb_per_s": {"memory/t1": 30.0, "memory/t2": 40.0}}
    rows = [_row(variant, phase, threads=threads) for threads in (1, 2)
            for phase in ("inference", "train", "step-sgd")
            for variant in ("dense", "fused", "naive")]
    rows.append(_row("sequential", status="oom", reason="budget"))
    figure, = _drawn(tmp_path, rows, run)
    assert len(figure.rows) == 12  # The steps and the cell without a time are not on it.
    assert os.path.basename(figure.paths[0]) == "roofline-float32-cpu.svg"
    # One thread's cells have no roof here.
    del run["bandwidth_gb_per_s"]["memory/t1"]
    figure, = _drawn(tmp_path, rows, run)
    assert {row.threads for row in figure.rows} == {2}


def test_without_bandwidth_a_sentence_stands_in_its_place(tmp_path):
    run = {name: value for name, value in synthetic.RUN.items()
           if name != "bandwidth_gb_per_s"}
    rows = [_row("dense"), _row("fused")]
    assert _drawn(tmp_path, rows, run) == []
    sentence = "This run has no bandwidth in its run.json, so there is no roofline."
    crossover.draw_all(str(tmp_path), formats=("svg",))
    assert sentence in (tmp_path / "report.html").read_text(encoding="utf-8")
    synthetic.write(tmp_path, rows, [], synthetic.RUN)
    crossover.draw_all(str(tmp_path), formats=("svg",))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert sentence not in page and 'id="roofline-float32-cpu"' in page


def test_a_cell_without_a_time_or_a_count_is_left_out(tmp_path):
    rows = [dataclasses.replace(_row("dense"), gflops=None),
            dataclasses.replace(_row("fused"), flops_model=None)]
    assert _drawn(tmp_path, rows, synthetic.RUN) == []


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
