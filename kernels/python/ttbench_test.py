import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import ttbench

IN, OUT, RANKS = [2, 3, 4], [3, 2, 5], [1, 2, 3, 1]
TT_VARIANTS = [name for name in ttbench.variants() if not name.startswith("dense")]


def _layer(dtype=torch.float64, batch=6):
    torch.manual_seed(3)
    cores = [torch.randn(r, n, m, s, dtype=dtype, requires_grad=True)
             for r, n, m, s in zip(RANKS, IN, OUT, RANKS[1:])]
    return torch.randn(batch, 24, dtype=dtype, requires_grad=True), cores


def _by_definition(x, cores):
    """y from W[(j1 j2 j3), (i1 i2 i3)] = G1[i1, j1] G2[i2, j2] G3[i3, j3]."""
    weight = torch.einsum("aijb,bklc,cmnd->jlnikm", *cores).reshape(30, 24)
    return x @ weight.T


@pytest.mark.parametrize("name", TT_VARIANTS)
def test_outputs_and_gradients_are_those_of_the_definition(name):
    x, cores = _layer()
    dy = torch.randn(6, 30, dtype=torch.float64)
    want = _by_definition(x, cores)
    got = torch.ops.ttbench.linear(name, IN, OUT, RANKS, x, cores)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    want_gradients = torch.autograd.grad(want, [x, *cores], dy)
    for gradient, expected in zip(torch.autograd.grad(got, [x, *cores], dy), want_gradients):
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-11)


def test_dense_takes_one_weight():
    x = torch.randn(5, 24, dtype=torch.float64)
    weight = torch.randn(30, 24, dtype=torch.float64)
    got = torch.ops.ttbench.linear("dense", IN, OUT, RANKS, x, [weight])
    torch.testing.assert_close(got, x @ weight.T, rtol=0, atol=1e-12)


def test_module_trains_saves_and_takes_leading_dimensions():
    layer = ttbench.TtLinear(IN, OUT, ranks=[2, 3], dtype=torch.float64)
    assert sorted(layer.state_dict()) == ["bias", "cores.0", "cores.1", "cores.2"]
    assert [tuple(core.shape) for core in layer.cores] == [(1, 2, 3, 2), (2, 3, 2, 3), (3, 4, 5, 1)]
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(2, 3, 24, dtype=torch.float64).transpose(0, 1)
    y = layer(x)
    torch.testing.assert_close(y, _by_definition(x, layer.cores) + layer.bias, rtol=0, atol=1e-12)
    y.sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((30,), 6, dtype=torch.float64))
    assert all(core.grad is not None for core in layer.cores)
    other = ttbench.TtLinear(IN, OUT, ranks=[2, 3], variant="sequential", dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), y, rtol=0, atol=1e-12)


def test_weight_has_the_variance_of_glorot():
    torch.manual_seed(0)
    layer = ttbench.TtLinear([8, 8, 8], [8, 8, 8], ranks=16, bias=False)
    weight = layer(torch.eye(512))
    # W's elements are dependent, so one draw is off by several percent; without the ranks in the
    # formula it would be off by 256.
    assert weight.var().item() == pytest.approx(2 / 1024, rel=0.25)


@pytest.mark.parametrize("change, words", [
    ({"name": "nonsense"}, "there is no variant 'nonsense'; use one of dense, "),
    ({"x": torch.zeros(6, 23)}, r"takes \[\.\.\., 24\]"),
    ({"ranks": [1, 2, 1]}, "ranks"),
    ({"ranks": [1, 7, 3, 1]}, "7"),
    ({"cores": 2}, "takes 3"),
    ({"x": torch.zeros(6, 24, dtype=torch.float32)}, "convert one with to"),
])
def test_wrong_arguments_are_named(change, words):
    x, cores = _layer()
    with pytest.raises((ValueError, TypeError), match=words):
        torch.ops.ttbench.linear(change.get("name", "fused"), IN, OUT, change.get("ranks", RANKS),
                                 change.get("x", x), cores[:change.get("cores", 3)])


def test_the_module_refuses_other_numbers_of_ranks():
    with pytest.raises(ValueError, match="1 ranks for 3 cores"):
        ttbench.TtLinear(IN, OUT, ranks=[2])
