import pathlib
import re
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


# Functions of the user's own.

# As docs/peers.md shows it.
_RIGHT = re.search(r"```python\n(# proto\.py: .*?)```",
                   (_ROOT / "docs" / "peers.md").read_text(encoding="utf-8"), re.DOTALL)[1]


@pytest.fixture
def measure_function(tmp_path, monkeypatch):
    """Measures forward() of a file whose source is _RIGHT and what is given; its reply."""
    monkeypatch.setattr(peers_worker, "PEERS", dict(peers_worker.PEERS))

    def call(source="", **changes):
        path = tmp_path / "proto.py"
        path.write_text(_RIGHT + source, encoding="utf-8")
        peers_worker.add_python_variant(peers_worker.python_variants.Spec(str(path)))
        results, replies = _measure(["dense", "py-proto"], **changes)
        assert results["dense"]["status"] == "ok"
        timed = "py-proto" in replies[-1]["times"]
        assert timed == (results["py-proto"]["status"] == "ok")
        return results["py-proto"]
    return call


@pytest.mark.parametrize("phase", ["inference", "train"])
def test_a_function_is_a_side(measure_function, phase):
    result = measure_function(phase=phase)
    assert (result["status"], result["reason"]) == ("ok", "")
    assert result["algorithm"] == "proto.py: forward()"
    assert result["weight_bytes"] == 4 * (2 * 3 * 2 + 2 * 3 * 2 * 3 + 3 * 4 * 5)
    assert 0 < result["max_relative_error"] < 1e-5


def test_a_function_says_what_it_cannot_compute(measure_function):
    result = measure_function(in_modes=[2, 2], out_modes=[3, 5], ranks=[1, 3, 1])
    assert (result["status"], result["reason"]) == ("skipped", "written for three cores")


@pytest.mark.parametrize("source, status, words", [
    ("right = forward\ndef forward(x, cores): return 1.001 * right(x, cores)\n",
     "wrong", "y is wrong: it differs from the float64 oracle by 0.001"),
    ("right = forward\n"
     "def forward(x, cores):\n"
     "    a, b, c = cores\n"
     "    return right(x, [a, b.detach() + 2 * (b - b.detach()), c])\n",
     "wrong", "the gradient of core 2 is wrong"),
    ("right = forward\ndef forward(x, cores): return right(x, [cores[0].detach(), *cores[1:]])\n",
     "wrong", "core 1 got no gradient"),
    ("right = forward\ndef forward(x, cores): return right(x, cores).detach()\n",
     "wrong", "y has no history"),
    ("right = forward\nkept = []\n"
     "def forward(x, cores):\n"
     "    kept.append(x.detach().clone())\n"
     "    return right(x, cores)\n",
     "wrong", "576 bytes outlive the iteration"),
    ("def forward(x, cores): return x.repeat(1, 2)\n", "wrong", "y is torch.float32 [6, 48]"),
    ("def forward(x, cores): return None\n", "wrong", "y is of type NoneType"),
    ("def forward(x, cores): return {}['core']\n", "crashed",
     "KeyError: 'core' (where it cannot compute a layer, it has to raise NotImplementedError"),
    ("import torch\ndef forward(x, cores): return torch.empty(1 << 47)\n", "oom", ""),
])
def test_a_function_that_goes_wrong_has_a_row_with_a_sentence(measure_function, source, status, words):
    result = measure_function(source)
    assert result["status"] == status, result
    assert words in result["reason"]


def test_a_function_that_returns_x_is_told(measure_function):
    result = measure_function("def forward(x, cores): return x\n", in_modes=[2, 3, 4],
                              out_modes=[4, 2, 3], ranks=[1, 2, 2, 1])
    assert result["status"] == "wrong"
    assert "y shares its memory with x" in result["reason"] and "clone() it" in result["reason"]
