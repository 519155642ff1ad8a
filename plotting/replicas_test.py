"""The verdict on C7, on rows worked out by hand."""

import csv
import dataclasses
import pathlib
import sys

import pytest

from plotting import claims
from plotting import replicas
from plotting import results


def _row(variant, check, keeping="registered", status="ok", rank=8, **changes):
    row = {field.name: "" for field in dataclasses.fields(replicas.Row)}
    row.update(schema=1, experiment="replicas", cell=f"linear/{variant}/{check}", variant=variant,
               in_modes="4x4", out_modes="4x4", ranks="" if variant == "dense" else f"1x{rank}x1",
               rank="" if variant == "dense" else rank, cores=2, batch=8, phase="train",
               dtype="float64", threads=1, keeping=keeping, check=check, status=status,
               max_relative_error=1e-15, processes=1)
    if check == "processes" and status == "ok":
        size = 2048 if variant == "dense" else 32 * rank
        row.update(processes=2, gradient_bytes=size, exchanged_bytes=size + 64,
                   exchanged_bytes_formula=size, step_ns=2_000_000, exchange_ns=500_000,
                   joined_ns=3_000_000)
    row.update(changes)
    return row


def _run(directory, rows):
    with open(directory / "replicas.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (directory / "run.json").write_text('{"libtorch": "2.11.0"}', encoding="utf-8")
    return directory


_GOOD = [_row(variant, check) for variant in ("dense", "sequential")
         for check in ("to-dtype", "processes")]
_BROKEN = [_row("sequential", "to-dtype", "plain", "failed", reason="0 of 2 weights moved",
                max_relative_error="")]


def _verdict(directory, rows):
    verdict, = replicas.judge(_run(directory, rows))
    return verdict


def test_does_not_hold_where_only_plain_cores_fail(tmp_path):
    verdict = _verdict(tmp_path, _GOOD + _BROKEN)
    assert verdict.verdict == claims.FAILS
    assert verdict.measured == "4 of 4 checks pass; with plain cores 0 of 1"
    assert "to(dtype): 0 of 2 weights moved" in verdict.evidence
    assert "1e-15 in float64" in verdict.evidence


def test_holds_where_a_registered_layer_fails(tmp_path):
    failed = _row("fused", "clone", status="failed", reason="the copy has other weights")
    verdict = _verdict(tmp_path, _GOOD + _BROKEN + [failed])
    assert verdict.verdict == claims.HOLDS
    assert "the copy has other weights" in verdict.evidence


def test_a_crash_is_a_failure_and_a_skipped_cell_is_none(tmp_path):
    crashed = _row("fused", "all", status="crashed", reason="SIGSEGV", max_relative_error="")
    assert _verdict(tmp_path, _GOOD + _BROKEN + [crashed]).verdict == claims.HOLDS
    assert _verdict(tmp_path, _GOOD + _BROKEN + [dict(crashed, status="skipped")]
                    ).verdict == claims.FAILS


def test_unknown_without_the_failing_case(tmp_path):
    assert _verdict(tmp_path, _GOOD).verdict == claims.UNKNOWN
    assert _verdict(tmp_path, _BROKEN).verdict == claims.UNKNOWN


def test_exchange_is_set_beside_the_dense_layers(tmp_path):
    run = replicas.load(_run(tmp_path, _GOOD + _BROKEN))
    (dense, tt), = replicas.exchanged_pairs(run)
    assert (dense.gradient_bytes, tt.gradient_bytes) == (2048, 256)
    checks, exchange = replicas.build(run)
    assert exchange.rows[0][5:10] == ("2048", "256", "2112", "320", "256")
    assert checks.rows[-1] == ("plain", "to(dtype)", "0 of 1", "", "0 of 2 weights moved")


def test_drawing_is_deterministic(tmp_path):
    rows = _GOOD + _BROKEN + [_row("sequential", "processes", rank=16),
                              {**_row("sequential", "processes"), "ranks": "1x20x32x1", "rank": ""}]
    run = _run(tmp_path, rows)
    first, second = (replicas.draw_all(run, tmp_path / name) for name in ("a", "b"))
    assert len(first) == len(second) == 8
    for a, b in zip(first, second):
        assert pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes(), a


def test_says_what_is_no_run(tmp_path):
    with pytest.raises(results.ResultsError, match="holds no replicas.csv"):
        replicas.load(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
