"""TT linear layers in PyTorch, computed by the suite's variants.

    layer = ttbench.TtLinear([2, 5, 41], [10, 14, 15], ranks=8)
    y = layer(x)  # x [..., 410], y [..., 2100]; differentiable

Needs the torch whose version the library was built with, and libttbench.so beside this file.
"""

import csv
import math
import pathlib

import torch

torch.ops.load_library(pathlib.Path(__file__).with_name("libttbench.so"))


def variants():
    """Names of all variants: the dense baseline first."""
    return torch.ops.ttbench.variants()


def load_calibration(path):
    """Takes the rates by which `auto` picks from a sweep's calibration.csv.

    Without them it picks by rough guesses. Load them before layers run, not while.
    """
    def modes(text):
        return [int(mode) for mode in text.split("x")]

    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            torch.ops.ttbench.add_speed(
                row["variant"], modes(row["in_modes"]), modes(row["out_modes"]),
                modes(row["ranks"]), int(row["batch"]), row["phase"] == "train",
                getattr(torch, row["dtype"]), int(row["threads"]), float(row["time_ns"]) * 1e-9)


class TtLinear(torch.nn.Module):
    """y = x Wᵀ + bias with W, [M, N], in tensor-train format.

    Core k, `cores[k]`, is [r_{k-1}, n_k, m_k, r_k]. Cores are drawn such that W has the variance
    of a dense layer's Glorot initialisation, 2 / (N + M).

    Args:
      in_modes: n_1..n_K, whose product is N.
      out_modes: m_1..m_K, whose product is M.
      ranks: the K-1 inner ranks, or one number for all.
      variant: the way to compute the layer, one of variants() that takes cores.
      bias: whether there is one, zeros at first.
    """

    def __init__(self, in_modes, out_modes, ranks, variant="fused", bias=True, dtype=None):
        super().__init__()
        self.in_modes, self.out_modes = list(in_modes), list(out_modes)
        if len(self.in_modes) != len(self.out_modes):
            raise ValueError(f"{len(self.in_modes)} in_modes and {len(self.out_modes)} out_modes: "
                             "each core has one of both")
        inner = [ranks] * (len(self.in_modes) - 1) if isinstance(ranks, int) else list(ranks)
        if len(inner) != len(self.in_modes) - 1:
            raise ValueError(f"{len(inner)} ranks for {len(self.in_modes)} cores, which have "
                             f"{len(self.in_modes) - 1} between them")
        self.ranks = [1, *inner, 1]
        self.variant = variant
        self.cores = torch.nn.ParameterList(
            torch.empty(r, n, m, s, dtype=dtype) for r, n, m, s in
            zip(self.ranks, self.in_modes, self.out_modes, self.ranks[1:]))
        self.bias = (torch.nn.Parameter(torch.empty(math.prod(self.out_modes), dtype=dtype))
                     if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        # W sums prod r_k products of one element of each core, uncorrelated and of mean zero.
        variance = 2 / (math.prod(self.in_modes) + math.prod(self.out_modes))
        sigma = (variance / math.prod(self.ranks)) ** (0.5 / len(self.cores))
        for core in self.cores:
            torch.nn.init.normal_(core, 0, sigma)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x):
        y = torch.ops.ttbench.linear(self.variant, self.in_modes, self.out_modes, self.ranks, x,
                                     list(self.cores))
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        return (f"{'x'.join(map(str, self.in_modes))}:{'x'.join(map(str, self.out_modes))}, "
                f"ranks={'x'.join(map(str, self.ranks))}, variant={self.variant!r}, "
                f"bias={self.bias is not None}")
