import pathlib
import sys

import pytest
import torch

_ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(_ROOT / "kernels" / "python"), str(_ROOT / "experiments")]
import peers_worker

torch.ops.load_library(_ROOT / "benchmarks" / "python" / "libttbench_measure.so")
MEASURE = torch.ops.ttbench_measure
SIDES = ["dense", "sequential", "fused", "fused-panel", *peers_worker.PEERS]


def _request(sides, **changes):
    return {"in_modes": [2, 3, 4], "out_modes": [3, 2, 5], "ranks": [1, 2, 3, 1], "batch": 6,
            "phase": "train", "seed": 1, "sides": sides, "min_time_ns": 1, "time_limit_ns": 1e6,
            "repetitions": 3, "memory_budget_bytes": 1 << 30, **changes}


def _measure(sides, **changes):
    replies = []
    peers_worker.measure(_request(sides, **changes), replies.append)
    return {r["side"]: r for r in replies if "side" in r}, replies


@pytest.mark.parametrize("phase", ["inference", "train"])
@pytest.mark.parametrize("changes", [
    {},
    {"batch": 1},
    {"in_modes": [2, 2], "out_modes": [3, 5], "ranks": [1, 3, 1]},
    {"in_modes": [2, 3, 2, 2], "out_modes": [2, 2, 3, 2], "ranks": [1, 2, 3, 2, 1]},
])
def test_every_side_agrees_with_the_oracle_and_is_timed(phase, changes):
    results, replies = _measure(SIDES, phase=phase, **changes)
    assert {name: (r["status"], r["reason"]) for name, r in results.items()} == dict.fromkeys(
        SIDES, ("ok", ""))
    times = replies[-1]["times"]
    assert sorted(times) == sorted(SIDES)
    assert all(len(samples) >= 3 and min(samples) > 0 for samples in times.values())


def test_a_side_with_other_weights_is_wrong(monkeypatch):
    def shifted(layer, cores):
        return peers_worker._torch_einsum(layer, [cores[0] * 1.001, *cores[1:]])
    monkeypatch.setitem(peers_worker.PEERS, "peer-torch-einsum", (shifted, ""))
    results, replies = _measure(["fused", "peer-torch-einsum"])
    assert results["peer-torch-einsum"]["status"] == "wrong"
    assert list(replies[-1]["times"]) == ["fused"]


def test_a_side_with_a_wrong_gradient_is_wrong(monkeypatch):
    def doubled(layer, cores):
        forward, parameters, _ = peers_worker._torch_einsum(layer, cores)
        return forward, parameters, lambda gradient: 2 * gradient
    monkeypatch.setitem(peers_worker.PEERS, "peer-torch-einsum", (doubled, ""))
    assert _measure(["peer-torch-einsum"])[0]["peer-torch-einsum"]["status"] == "wrong"
    assert _measure(["peer-torch-einsum"], phase="inference")[0][
        "peer-torch-einsum"]["status"] == "ok"


def test_bytes_are_those_of_the_formulas():
    d, rank, batch = 4, 2, 10
    changes = {"in_modes": [d] * 3, "out_modes": [d] * 3, "ranks": [1, rank, rank, 1],
               "batch": batch}
    x = y = 4 * batch * d ** 3
    matrix, cores = 4 * d ** 6, 4 * d ** 2 * (rank ** 2 + 2 * rank)
    inference, _ = _measure(["dense"], phase="inference", **changes)
    assert inference["dense"]["weight_bytes"] == matrix
    assert inference["dense"]["forward_peak_bytes"] == y
    assert inference["dense"]["peak_bytes"] == matrix + x + y
    train, _ = _measure(["dense", "fused", "peer-tensorly-reconstructed"], **changes)
    assert train["dense"]["held_bytes"] == x
    assert train["fused"]["held_bytes"] == x
    assert train["fused"]["weight_bytes"] == cores
    # y, its gradient, and the gradients of x and of the weight.
    assert train["dense"]["backward_peak_bytes"] == 2 * y + x + matrix
    # A rebuilt matrix is held beside x.
    assert train["peer-tensorly-reconstructed"]["held_bytes"] >= x + matrix


def test_past_the_budget_is_out_of_memory():
    results, _ = _measure(["fused", "peer-tensorly-reconstructed"], in_modes=[8] * 3,
                          out_modes=[8] * 3, ranks=[1, 2, 2, 1], batch=1,
                          memory_budget_bytes=512 * 1024)
    # The matrix alone is 1 MiB.
    assert results["peer-tensorly-reconstructed"]["status"] == "oom"
    assert results["fused"]["status"] == "ok"


def test_einsum_names_every_index():
    layer = peers_worker.Layer(_request([]))
    assert layer.equation() == "abcd,hbei,icfj,jdgk->aefg"
