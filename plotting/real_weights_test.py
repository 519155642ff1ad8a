"""Verdicts and figures of trained weights, on rows worked out by hand."""

import csv
import dataclasses
import json
import sys

import pytest

from plotting import claims
from plotting import real_weights
from plotting import real_weights_rows
from plotting import results

_TABLES = {"checks": real_weights_rows.Check, "matrices": real_weights_rows.Matrix,
           "embeddings": real_weights_rows.Embedding, "passes": real_weights_rows.Pass}
_FACTORS = {2: ("16x24", "32x48"), 3: ("6x8x8", "8x12x16"), 4: ("4x4x4x6", "4x6x8x8")}


def _setting(cores, rank):
    if cores is None:
        return {"schema": 1, "method": "svd", "rank": rank}
    hidden, inner = _FACTORS[cores]
    return {"schema": 1, "method": "tt", "cores": cores, "order": "ascending", "rank": rank,
            "factors_hidden": hidden, "factors_inner": inner}


def _matrix(cores, rank, share, error, svd_error, layer=0, **fields):
    return {**_setting(cores, rank), "layer": layer, "matrix": "up", "ranks": f"1x{rank}x1",
            "weight_bytes": 1000, "ratio_to_dense": share, "relative_error": error, "svd_rank": 10,
            "svd_weight_bytes": 990, "svd_relative_error": svd_error, **fields}


def _embedding(cores, rank, share, cosine, spearman=None, compressed="all"):
    return {**_setting(cores, rank), "compressed": compressed, "feed_forward_bytes": 1000,
            "ratio_to_dense": share, "sentences": 12, "mean_cosine": cosine,
            "worst_cosine": cosine - 0.1, "spearman": cosine if spearman is None else spearman}


def _pass(variant, cores, rank, share, peak, time, cosine=0.5, **fields):
    setting = ({"schema": 1, "method": "dense"} if cores == 0 else _setting(cores, rank))
    return {**setting, "variant": variant, "algorithm": "any", "sentences": 4, "tokens": 80,
            "threads": 2, "status": "ok", "feed_forward_bytes": 1000, "ratio_to_dense": share,
            "weight_bytes": 900, "peak_bytes": int(1000 * peak), "peak_ratio_to_dense": peak,
            "time_ns": 1e6 * time, "time_min_ns": 1e6 * time, "rounds": 3,
            "time_ratio_to_dense": time, "mean_cosine": cosine, "max_difference": 0, **fields}


_DENSE = [_pass("dense", 0, None, 1, 1, 1, 1), _pass("dense-onednn", 0, None, 1, 1, 0.9, 1)]


def _write(directory, **rows):
    for name, kind in _TABLES.items():
        columns = [field.name for field in dataclasses.fields(kind)]
        with open(directory / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows.get(name, ()))
    (directory / "run.json").write_text(json.dumps({"experiment": "real_weights"}))
    return directory


def _verdict(directory, name, **rows):
    return next(v for v in real_weights.judge(_write(directory, **rows)) if v.id == name)


@pytest.mark.parametrize("rows, verdict", [
    ([], claims.UNKNOWN),
    # Full rank takes more bytes than dense, and one matrix alone is not the network.
    ([_embedding(2, 512, 1.44, 1.0), _embedding(2, 8, 0.1, 1.0, compressed="layer 0 up")],
     claims.UNKNOWN),
    ([_embedding(3, 38, 0.25, 0.4), _embedding(3, 120, 0.99, 0.94)], claims.FAILS),
    ([_embedding(None, 100, 0.3, 1.0), _embedding(3, 38, 0.25, 0.4)], claims.FAILS),
    ([_embedding(3, 38, 0.25, 0.4), _embedding(3, 120, 0.9, 0.995)], claims.CONSTANT),
    ([_embedding(3, 38, 0.25, 0.4), _embedding(3, 80, 0.5, 0.995)], claims.HOLDS),
    # The embeddings keep their direction but not whom they are near.
    ([_embedding(3, 80, 0.5, 0.995, spearman=0.9)], claims.FAILS)])
def test_little_loss(tmp_path, rows, verdict):
    assert _verdict(tmp_path, "W1", embeddings=rows).verdict == verdict


@pytest.mark.parametrize("rows, verdict", [
    ([], claims.UNKNOWN),
    ([_matrix(2, 1, 0.001, 0.99, 1.0, svd_rank=0), _matrix(2, 512, 1.4, 0.0, 0.0)], claims.UNKNOWN),
    ([_matrix(2, 8, 0.1, 0.8, 0.9), _matrix(3, 8, 0.5, 0.4, 0.5)], claims.HOLDS),
    ([_matrix(2, 8, 0.1, 0.95, 0.9), _matrix(3, 8, 0.5, 0.4, 0.5)], claims.CONSTANT),
    # Ahead only where hardly a byte is saved.
    ([_matrix(2, 8, 0.1, 0.95, 0.9), _matrix(3, 8, 0.97, 0.1, 0.2)], claims.FAILS),
    ([_matrix(2, 8, 0.1, 0.8, 0.9), _matrix(3, 8, 0.5, 0.6, 0.5)], claims.FAILS)])
def test_better_than_svd(tmp_path, rows, verdict):
    assert _verdict(tmp_path, "W2", matrices=rows).verdict == verdict


_LEAN = _pass("fused", 2, 8, 0.25, 0.8, 0.9)
_SLOW = _pass("fused", 3, 8, 0.25, 0.8, 0.95)  # Faster than dense, not than dense-onednn.
_FAT = _pass("sequential", 2, 8, 0.25, 1.2, 0.5)


@pytest.mark.parametrize("rows, verdict", [
    ([_LEAN], claims.UNKNOWN),
    (_DENSE, claims.UNKNOWN),
    ([*_DENSE, _LEAN, _FAT], claims.HOLDS),
    ([*_DENSE, _LEAN, _SLOW], claims.CONSTANT),
    ([*_DENSE, _FAT, _SLOW], claims.FAILS),
    # Leaner by one variant, faster by another: no variant is both.
    ([*_DENSE, _FAT, _pass("fused", 2, 8, 0.25, 0.8, 2)], claims.FAILS),
    ([*_DENSE, _SLOW, {**_LEAN, "status": "wrong", "reason": "it is"}], claims.FAILS),
    ([*_DENSE, _SLOW, _pass("fused", 2, 99, 0.9, 0.8, 0.5)], claims.FAILS)])
def test_leaner_and_faster(tmp_path, rows, verdict):
    assert _verdict(tmp_path, "W3", passes=rows).verdict == verdict


def _whole_run():
    shares = {8: 0.05, 64: 0.4, 400: 1.3}
    return {
        "checks": [{"schema": 1, "check": "beside NumPy", "sentences": 3, "difference": 1e-7,
                    "allowed": 5e-6, "status": "ok"}],
        "matrices": [_matrix(cores, rank, share, 1 - share / 1.3, 0.9 - share / 1.5, layer)
                     for cores in (None, 2, 3) for rank, share in shares.items()
                     for layer in (0, 1)],
        "embeddings": [*(_embedding(cores, rank, share, share / 1.3) for cores in (None, 2, 3)
                         for rank, share in shares.items()),
                       _embedding(3, 8, 0.05, 0.8, compressed="layer 0 up"),
                       _embedding(3, 8, 0.05, 0.9, compressed="layer 0 down")],
        "passes": [*_DENSE, _LEAN, _FAT, _SLOW,
                   {**_setting(4, 8), "variant": "fused", "status": "skipped", "reason": "too slow"}],
    }


def test_draws_the_same_bytes_again(tmp_path):
    directory = _write(tmp_path, **_whole_run())
    paths = real_weights.draw_all(directory, tmp_path / "a")
    again = real_weights.draw_all(directory, tmp_path / "b")
    stems = {path.rsplit("/", 1)[1] for path in map(str, paths)}
    for name in ("weights-matrices", "weights-embeddings", "weights-alone", "weights-front",
                 "weights-passes"):
        assert {f"{name}.svg", f"{name}.pdf", f"{name}.png"} <= stems
    assert paths[-1].endswith("report.html")
    for one, other in zip(paths, again):
        with open(one, "rb") as a, open(other, "rb") as b:
            assert a.read() == b.read(), one
    for verdict in real_weights.judge(directory):
        assert any(stem.startswith(verdict.figure) for stem in stems), verdict.id


def test_a_stopped_run_is_drawn_as_far_as_it_came(tmp_path):
    directory = _write(tmp_path, checks=_whole_run()["checks"],
                       matrices=_whole_run()["matrices"][:1])
    assert real_weights.draw_all(directory)[-1].endswith("report.html")
    assert {v.verdict for v in real_weights.judge(directory)} == {claims.UNKNOWN}


def test_says_what_is_no_run(tmp_path):
    with pytest.raises(results.ResultsError, match="holds no checks.csv"):
        real_weights.judge(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
