import dataclasses
import sys
import textwrap

import pytest

from experiments import peers
from experiments import peers_cells
from plotting import results

PLAN = """\
        peak      time  cell
    1.1KiB     0.40s  linear/sequential/8x8x8:8x8x8/r4/b32/train/float32/cpu/t2
    1.1KiB     0.40s  linear/sequential/2x5:3x4/r6/b1/inference/float32/cpu/t2
    1.1KiB     0.40s  linear/sequential/2x5x2:3x4x2/r6x4/b1/train/float32/cpu/t2  skipped: too big
3 cells, 2 to run, about 0:01
"""
CELL = peers_cells.Cell((8, 8, 8), (8, 8, 8), (1, 4, 4, 1), 32, "train", 2)


def test_plan_is_read_into_cells():
    cells = peers_cells.parse_plan(PLAN)
    assert cells == [
        CELL,
        peers_cells.Cell((2, 5), (3, 4), (1, 6, 1), 1, "inference", 2),
        peers_cells.Cell((2, 5, 2), (3, 4, 2), (1, 6, 4, 1), 1, "train", 2, "too big"),
    ]
    # The names are those of the sweep, but for the variant.
    assert [cell.name("sequential") for cell in cells] == [
        line.split()[2] for line in PLAN.splitlines()[1:-1]]


@pytest.mark.parametrize("old, new, words", [
    ("train", "step-adam", "--phase=step-adam"), ("float32", "bfloat16", "--dtype"),
    ("/r4", "", "no cell")])
def test_other_cells_are_refused(old, new, words):
    with pytest.raises(peers_cells.CellError, match=words):
        peers_cells.parse_plan(PLAN.replace(old, new))


def test_names_and_repro():
    assert CELL.name("dense") == "linear/dense/8x8x8:8x8x8/b32/train/float32/cpu/t2"
    assert CELL.repro("peer-a") == (
        "bazel run //experiments:peers -- --variant=peer-a --shape=8x8x8:8x8x8 --rank=4 "
        "--batch=32 --phase=train --threads=2")


def test_row_is_what_was_measured():
    dense = peers_cells.Outcome("ok", figures={"peak_bytes": 4000}, samples=(10.0, 20.0, 30.0))
    mine = peers_cells.Outcome(
        "ok", "", "by hand", {"weight_bytes": 400, "peak_bytes": 1000}, (30.0, 20.0, 40.0), 7,
        "converged")
    row = peers_cells.build_row(CELL, "peer-a", mine, dense, 5, "peers")
    assert set(row) <= set(results.COLUMNS)
    assert row["cell"] == "linear/peer-a/8x8x8:8x8x8/r4/b32/train/float32/cpu/t2"
    assert (row["d"], row["rank"], row["ranks"]) == (8, 4, "1x4x4x1")
    assert (row["parameters"], row["seed"], row["baseline"]) == (100, 5, 0)
    assert (row["time_ns"], row["time_min_ns"], row["repetitions"]) == (30, 20, 3)
    # Quartiles 25 and 35; the rounds' ratios are 3, 1 and 4/3.
    assert row["time_spread"] == pytest.approx(1 / 3)
    assert row["time_ratio_to_dense"] == pytest.approx(4 / 3)
    assert row["peak_ratio_to_dense"] == 0.25
    assert "held_bytes" not in row


def test_row_of_a_failure_has_no_figures():
    row = peers_cells.build_row(CELL, "dense", peers_cells.Outcome("timeout", "too slow"), None, 1,
                                "peers")
    assert (row["status"], row["reason"], row["baseline"]) == ("timeout", "too slow", 1)
    assert "ranks" not in row and "time_ns" not in row and "parameters" not in row


def test_rows_are_on_disk_at_once_and_read_back(tmp_path):
    writer = peers_cells.RowWriter(tmp_path)
    outcome = peers_cells.Outcome("ok", "", "by hand", {"weight_bytes": 400, "peak_bytes": 1000,
                                                        "max_relative_error": float("nan")},
                                  (1234567.8,), 1, "converged")
    writer.append(peers_cells.build_row(CELL, "peer-a", outcome, None, 1, "peers"))
    row, = results.load(tmp_path).rows
    assert (row.peak_bytes, row.time_ns, row.max_relative_error) == (1000, 1234570, None)
    with pytest.raises(ValueError, match="nonsense"):
        writer.append({"nonsense": 1})
    with pytest.raises(FileExistsError):
        peers_cells.RowWriter(tmp_path)


VARIANTS, PEERS = ["dense", "fused", "fused-panel", "sequential"], ["peer-a", "peer-b"]


def test_sides_without_a_flag():
    assert peers.choose_sides(None, VARIANTS, PEERS) == [
        "dense", "sequential", "fused", "fused-panel", "peer-a", "peer-b"]
    assert peers.choose_sides(None, [*VARIANTS, "auto"], PEERS) == [
        "dense", "sequential", "auto", "peer-a", "peer-b"]


def test_sides_by_globs_with_the_baseline():
    assert peers.choose_sides(["fused*", "peer-b"], VARIANTS, PEERS) == [
        "dense", "fused", "fused-panel", "peer-b"]
    with pytest.raises(ValueError, match="'fuse' matches nothing; there are dense, "):
        peers.choose_sides(["fuse"], VARIANTS, PEERS)


# Stands in for the worker: a side's name says how it behaves.
WORKER = textwrap.dedent("""\
    import json, os, signal, sys, time
    def reply(message):
        print(json.dumps(message), flush=True)
    reply({"hello": 1})
    for line in sys.stdin:
        sides = json.loads(line)["sides"]
        for side in sides:
            reply({"begin": side})
            if side == "dies":
                os.kill(os.getpid(), signal.SIGSEGV)
            if side == "leaves":
                sys.exit(3)
            if side == "hangs":
                time.sleep(60)
            reply({"side": side, "status": "ok", "reason": "", "peak_bytes": 1, "algorithm": "a"})
        reply({"begin": ""})
        if "times-hang" in sides:
            time.sleep(60)
        reply({"times": {side: [1.0, 2.0] for side in sides},
               "iterations": {side: 4 for side in sides}, "stop_reason": "converged"})
        reply({"done": True})
    """)


@pytest.fixture
def workers(tmp_path):
    path = tmp_path / "worker.py"
    path.write_text(WORKER, encoding="utf-8")
    workers = peers.Workers([sys.executable, str(path)])
    yield workers
    workers.end()


def test_one_worker_measures_cell_after_cell(workers):
    for _ in range(2):
        assert peers.measure(workers, {"sides": ["a"]}, 30) == {
            "a": peers_cells.Outcome("ok", "", "a", {"peak_bytes": 1}, (1.0, 2.0), 4, "converged")}
    assert workers.greeting == {"hello": 1}


@pytest.mark.parametrize("side, status, words", [
    ("dies", "crashed", "SIGSEGV"), ("leaves", "crashed", "exit code 3"),
    ("hangs", "timeout", "--cell-timeout")])
def test_a_side_that_ends_the_worker_costs_its_own_row(workers, side, status, words):
    outcomes = peers.measure(workers, {"sides": ["a", side, "b"]}, 1.5)
    assert outcomes[side].status == status and words in outcomes[side].reason
    assert outcomes["a"].status == outcomes["b"].status == "ok"
    assert outcomes["b"].samples == (1.0, 2.0)


def test_a_deadline_while_all_are_timed_is_nobodys_own(workers):
    outcomes = peers.measure(workers, {"sides": ["a", "times-hang"]}, 1.5)
    assert {o.status for o in outcomes.values()} == {"timeout"}
    assert all(o.samples == () for o in outcomes.values())


def test_every_column_of_an_outcome_is_a_column_of_the_table():
    outcome = dataclasses.replace(
        peers_cells.Outcome("ok"), figures={name: 1 for name in (
            "weight_bytes", "held_bytes", "forward_peak_bytes", "backward_peak_bytes",
            "peak_bytes", "max_relative_error")})
    assert set(peers_cells.build_row(CELL, "a", outcome, None, 1, "peers")) <= set(results.COLUMNS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
