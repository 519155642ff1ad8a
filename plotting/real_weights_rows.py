"""The tables of a run of //experiments:real_weights."""

import dataclasses
import os

from plotting import results as results_lib


@dataclasses.dataclass(frozen=True)
class Check:
    """The unchanged encoder beside another account of it."""

    schema: int
    check: str
    sentences: int | None
    difference: float | None
    allowed: float | None
    status: str


@dataclasses.dataclass(frozen=True)
class Matrix:
    """One feed-forward matrix at one rank; `svd_` is the truncated SVD of at most as many bytes."""

    schema: int
    layer: int | None
    matrix: str  # up or down
    method: str  # tt or svd
    cores: int | None
    order: str
    rank: int | None
    factors_hidden: str
    factors_inner: str
    ranks: str
    weight_bytes: int | None
    ratio_to_dense: float | None
    relative_error: float | None
    svd_rank: int | None
    svd_weight_bytes: int | None
    svd_relative_error: float | None


@dataclasses.dataclass(frozen=True)
class Embedding:
    """The encoder with some matrices compressed, against the original, over all sentences."""

    schema: int
    compressed: str  # "all", or one: "layer 3 up"
    method: str
    cores: int | None
    order: str
    rank: int | None
    factors_hidden: str
    factors_inner: str
    feed_forward_bytes: int | None  # Of the compressed matrices,
    ratio_to_dense: float | None  # over what they take densely.
    sentences: int | None
    mean_cosine: float | None
    worst_cosine: float | None
    spearman: float | None


@dataclasses.dataclass(frozen=True)
class Pass:
    """A pass of the encoder over one batch."""

    schema: int
    variant: str
    algorithm: str
    method: str  # dense, tt or svd
    cores: int | None
    order: str
    rank: int | None
    factors_hidden: str
    factors_inner: str
    sentences: int | None
    tokens: int | None  # Padding included.
    threads: int | None
    status: str
    reason: str
    feed_forward_bytes: int | None
    ratio_to_dense: float | None
    weight_bytes: int | None  # Of the whole encoder.
    peak_bytes: int | None  # Weights included.
    peak_ratio_to_dense: float | None
    time_ns: float | None
    time_min_ns: float | None
    time_spread: float | None
    rounds: int | None
    time_ratio_to_dense: float | None
    mean_cosine: float | None  # Of the batch's embeddings with the original's.
    max_difference: float | None  # From those of the same matrices multiplied by densely.


@dataclasses.dataclass(frozen=True)
class Run:
    checks: tuple
    matrices: tuple
    embeddings: tuple
    passes: tuple
    run: dict  # run.json
    notes: tuple


def load(directory):
    """Reads `directory`; raises ResultsError with one clear sentence."""
    notes, found = [], []
    for name, kind in (("checks", Check), ("matrices", Matrix), ("embeddings", Embedding),
                       ("passes", Pass)):
        path = os.path.join(directory, name + ".csv")
        if not os.path.isfile(path):
            raise results_lib.ResultsError(
                f"{directory} holds no {name}.csv, so it is not the directory of a run of "
                "//experiments:real_weights.")
        found.append(tuple(row for _, row in results_lib.read_table(path, kind, notes)))
    return Run(*found, results_lib.read_run(directory, notes), tuple(notes))
