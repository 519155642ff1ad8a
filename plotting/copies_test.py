"""The verdicts on copies, on rows worked out by hand: three cubic cores of d = 4, r = 2, B = 8."""

import csv
import dataclasses
import pathlib
import sys

import pytest

from plotting import claims
from plotting import copies
from plotting import results

X = 8 * 64 * 4  # bytes
_RESHAPE = " > reshape > clone > copy_"


def _cell(variant, phase="inference", **changes):
    ranked = not variant.startswith("dense")
    return {"schema": 1, "experiment": "copies", "cell": f"linear/{variant}/{phase}",
            "variant": variant, "algorithm": "", "in_modes": "4x4x4", "out_modes": "4x4x4",
            "ranks": "1x2x2x1" if ranked else "", "cores": 3, "d": 4, "rank": 2 if ranked else "",
            "batch": 8, "phase": phase, "dtype": "float32", "threads": 2, **changes}


def _copy(tensor, size, operators, **changes):
    return {"stage": "forward", "what": "copy", "operators": operators, "tensor": tensor,
            "kind": tensor, "target": f"{tensor}, permuted", "held": 1, "source_sizes": "8x4",
            "source_strides": "1x8", "target_strides": "4x1", "producer": "", "consumer": "bmm",
            "remedy": "read in place", "products": 8, "product_rows": 4, "product_columns": 4,
            "advice": "read it", "count": 1, "bytes": size, "bytes_model": size, **changes}


def _write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _run(directory, lines_of, status="ok", **cell_changes):
    """Writes a run: {variant: its lines of copies.csv}."""
    cells, lines = [], []
    for variant, own in lines_of.items():
        cell = _cell(variant)
        moved = [line for line in own if line["what"] == "copy"]
        total = sum(line["bytes"] for line in moved)
        cells.append({**cell, "status": status, "reason": "" if status == "ok" else "copy 1",
                      "copies": len(moved), "copies_model": len(moved), "copied_bytes": total,
                      "copied_bytes_model": total,
                      "scratch_bytes": sum(line["bytes"] for line in own) - total, "x_bytes": X,
                      "computed_bytes": 10 * X, "allocated_bytes_model": 20 * X, "repro": "",
                      **cell_changes})
        lines += [{**cell, **line} for line in own]
    _write(directory / "cells.csv", cells)
    _write(directory / "copies.csv", lines)
    (directory / "run.json").write_text('{"libtorch": "2.11.0"}', encoding="utf-8")
    return directory


_EINSUM = [_copy("x", X, "einsum" + _RESHAPE), _copy("intermediate", 2 * X, "einsum" + _RESHAPE)]
_BMM_CORES = [_copy("core", 64, "reshape > clone > copy_")]
_BMM_LARGE = [_copy("intermediate", X, "reshape > clone > copy_")]
_PACKED = [_copy("packed cores", 256, "empty", what="scratch", kind="scratch")]


def _judge(directory, **lines_of):
    hidden, fused = copies.judge(_run(directory, {
        name.replace("_", "-"): lines for name, lines in lines_of.items()}))
    return hidden, fused


def test_holds_where_both_copy_more_than_cores(tmp_path):
    hidden, _ = _judge(tmp_path, einsum=_EINSUM, sequential_bmm=_BMM_LARGE)
    assert hidden.verdict == claims.HOLDS
    assert hidden.measured == "einsum 3.00 x, sequential-bmm 1.00 x"


def test_constant_where_bmm_copies_cores_alone(tmp_path):
    hidden, _ = _judge(tmp_path, einsum=_EINSUM, sequential_bmm=_BMM_CORES)
    assert hidden.verdict == claims.CONSTANT
    assert "under bmm 0 of 1 cell" in hidden.evidence
    assert hidden.figure == "copies-4x4x4-4x4x4-r2-b8"


def test_fails_where_neither_does(tmp_path):
    small = [_copy("core", 64, "einsum" + _RESHAPE)]
    hidden, _ = _judge(tmp_path, einsum=small, sequential_bmm=_BMM_CORES)
    assert hidden.verdict == claims.FAILS


def test_copies_of_other_operators_count_for_neither(tmp_path):
    accumulated = [_copy("gradient", X, "AccumulateGrad > copy_")]
    hidden, _ = _judge(tmp_path, einsum=_EINSUM, sequential_bmm=_BMM_CORES + accumulated)
    assert hidden.verdict == claims.CONSTANT


def test_unknown_without_both_operators(tmp_path):
    hidden, fused = _judge(tmp_path, einsum=_EINSUM)
    assert hidden.verdict == claims.UNKNOWN
    assert fused.verdict == claims.UNKNOWN


def test_rows_that_are_not_the_models_judge_nothing(tmp_path):
    run = _run(tmp_path, {"einsum": _EINSUM, "sequential-bmm": _BMM_LARGE}, status="wrong")
    hidden, _ = copies.judge(run)
    assert hidden.verdict == claims.UNKNOWN and "not as the model says" in hidden.evidence
    assert "not as the cost model says" in pathlib.Path(
        copies.draw_all(run, tmp_path / "out", ("svg",))[-1]).read_text(encoding="utf-8")


def test_fused_holds_until_it_copies(tmp_path):
    assert _judge(tmp_path, fused=_PACKED)[1].verdict == claims.HOLDS
    large = [dict(_PACKED[0], bytes=X)]
    assert _judge(tmp_path, fused=large)[1].verdict == claims.CONSTANT
    assert _judge(tmp_path, fused=_PACKED + _BMM_CORES)[1].verdict == claims.FAILS


def test_tables_say_who_copies_and_what_would_avoid_it(tmp_path):
    run = copies.load(_run(tmp_path, {"einsum": _EINSUM, "sequential-bmm": _BMM_CORES,
                                      "fused": _PACKED, "dense": []}))
    operators, remedies, scratch = copies.build(run)
    assert operators.header == ("stage", "operator", "einsum", "sequential-bmm")
    assert operators.rows == (("forward", "einsum > reshape", "3.00", ""),
                              ("forward", "reshape", "", "0.03"))
    assert operators.note.endswith("No copies: fused, dense.")
    assert [row[:4] for row in remedies.rows] == [
        ("einsum", "forward", "einsum > reshape", "intermediate"),
        ("einsum", "forward", "einsum > reshape", "x"),
        ("sequential-bmm", "forward", "reshape", "core")]
    assert [row[4] for row in scratch.rows] == ["packed cores"]


def test_drawing_is_deterministic(tmp_path):
    run = _run(tmp_path, {"einsum": _EINSUM, "sequential-bmm": _BMM_CORES, "fused": _PACKED})
    first, second = (copies.draw_all(run, tmp_path / name) for name in ("a", "b"))
    assert len(first) == len(second) > 6
    for a, b in zip(first, second):
        assert pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes(), a


def test_says_what_is_no_run(tmp_path):
    with pytest.raises(results.ResultsError, match="holds no cells.csv"):
        copies.load(tmp_path)
    fields = [field.name for field in dataclasses.fields(copies.Cell)]
    (tmp_path / "cells.csv").write_text(",".join(fields[:-1]) + "\n1\n", encoding="utf-8")
    with pytest.raises(results.SchemaError, match="missing: repro"):
        copies.load(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
