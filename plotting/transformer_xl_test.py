"""Verdicts and terms of the Transformer-XL family on rows worked out by hand."""

import dataclasses
import sys

import pytest

from plotting import claims
from plotting import results
from plotting import transformer_xl
from plotting import transformer_xl_claims as data

SIZE = "L16-D410-I2100-T150-M150"
USUAL = "2x5x41:10x14x15"
DESCENDING = "41x5x2:10x14x15+15x14x10:2x5x41"


def _row(variant, peak, *, batch=20, phase="inference", layers=USUAL, rank=8, status="ok",
         **fields):
    values = {field.name: ("" if field.type is str else None)
              for field in dataclasses.fields(results.Row)}
    dense = variant == "dense"
    place = SIZE if dense else f"{SIZE}/{layers}/r{rank}"
    values.update(
        schema=1, experiment="transformer_xl", family="transformer-xl", variant=variant,
        cell=f"transformer-xl/{variant}/{place}/b{batch}/{phase}/float32/cpu/t2",
        baseline=int(dense), in_modes="" if dense else layers.split(":")[0],
        rank=None if dense else rank, source_len=150, target_len=150, hidden=410, layers=16,
        batch=batch, phase=phase, dtype="float32", device="cpu", threads=2, status=status,
        parameters=151_107_538 if dense else 123_861_458,
        weight_bytes=604_430_152 if dense else 495_445_832)
    if status == "ok":
        values.update(peak_bytes=peak, peak_bytes_model=peak)
    values.update(fields)
    return results.Row(**values)


def _results(rows, directory=""):
    return results.Results(str(directory), tuple(rows), (), False, {}, (),
                           {row.cell: i for i, row in enumerate(rows)})


def _verdict(run, name):
    return next(v for v in data.judge(run) if v.id == name)


@pytest.mark.parametrize("peak, verdict", [
    (1_420_000, claims.HOLDS), (1_410_000, claims.CONSTANT), (990_000, claims.FAILS)])
def test_the_ratio_at_inference_decides(peak, verdict):
    run = _results([_row("dense", 1_000_000), _row("sequential", peak)])
    c3 = _verdict(run, "C3")
    assert c3.verdict == verdict
    assert c3.published.startswith("1.417")
    assert c3.measured.startswith(f"{peak / 1e6:.3f} at B = 20")


def test_only_networks_of_the_published_size_count():
    rows = [_row("dense", 1_000_000, parameters=1), _row("sequential", 2_000_000, parameters=1)]
    assert _verdict(_results(rows), "C3").verdict == claims.UNKNOWN
    # Too many parameters for 124 million; a form that rebuilds the matrix.
    rows = [_row("dense", 1_000_000), _row("sequential", 2_000_000, parameters=125_000_000)]
    assert _verdict(_results(rows), "C3").verdict == claims.UNKNOWN
    rows = [_row("dense", 1_000_000), _row("naive", 2_000_000)]
    assert _verdict(_results(rows), "C3").verdict == claims.UNKNOWN


def test_passing_is_said_between_measured_batches():
    points = [(4, 0.99, None, None), (19, 1.40, None, None), (20, 1.42, None, None)]
    assert data.passes(points, 1) == (4, 19)
    assert data.passes(points, data.THREAD_RATIO) == (19, 20)
    assert data.passes(points, 2) == (20, None)
    assert data.passes(points, 0.5) == (None, 4)


# Beyond the fused network for 20 x 150 tokens in 16 layers, 4 bytes each.
def _held(elements):
    return 10 ** 9 + 4 * 20 * 150 * 16 * elements


@pytest.mark.parametrize("other, verdict", [
    (8_590, claims.HOLDS), (20_000, claims.CONSTANT), (80_000, claims.FAILS)])
def test_order_of_factors_is_judged_by_what_is_held(other, verdict):
    run = _results([
        _row("fused", 1, phase="train", held_bytes=_held(0)),
        _row("naive", 1, phase="train", held_bytes=_held(10)),
        _row("sequential-l2r", 1, phase="train", held_bytes=_held(69_390)),
        _row("sequential-l2r", 1, phase="train", layers=DESCENDING, held_bytes=_held(other))])
    c3a = _verdict(run, "C3a")
    assert c3a.verdict == verdict
    assert c3a.measured == f"{69_390 / other:.2f} times (69,390 / {other:,} elements)"


def test_without_both_orders_nothing_is_said():
    run = _results([_row("sequential-l2r", 1, phase="train", held_bytes=_held(69_390))])
    assert _verdict(run, "C3a").verdict == claims.UNKNOWN


@pytest.mark.parametrize("peak, verdict", [(1000, claims.HOLDS), (1001, claims.FAILS)])
def test_fused_is_held_to_every_batch_and_phase(peak, verdict):
    run = _results([_row("dense", 1000), _row("fused", 900),
                    _row("dense", 1000, phase="train"), _row("fused", peak, phase="train")])
    assert _verdict(run, "C3b").verdict == verdict
    assert _verdict(_results(run.rows[:2]), "C3b").verdict == claims.UNKNOWN


def _with_terms(tmp_path, row, gigabytes):
    (tmp_path / "terms.csv").write_text(
        f"cell,term,buffers,bytes\r\n{row.cell},relu,1,{gigabytes * 2 ** 30}\r\n")


@pytest.mark.parametrize("gigabytes, verdict", [(45, claims.HOLDS), (11, claims.FAILS)])
def test_could_not_be_trained(tmp_path, gigabytes, verdict):
    row = _row("sequential", 0, phase="train", batch=64, status="oom", reason="over the budget")
    _with_terms(tmp_path, row, gigabytes)
    c3c = _verdict(_results([row], tmp_path), "C3c")
    assert c3c.verdict == verdict
    assert f"{gigabytes} GiB" in c3c.predicted
    ran = _results([_row("sequential", 10 ** 10, phase="train", batch=64)])
    assert _verdict(ran, "C3c").verdict == claims.UNKNOWN


# The thread's arithmetic: 69,390 elements at r = 8, ascending; 8,590 descending, left to right.
@pytest.mark.parametrize("variant, layers, elements", [
    ("sequential-l2r", USUAL, 69_390), ("sequential", USUAL, 69_390),
    ("sequential-l2r", DESCENDING, 8_590), ("sequential", "2x5x41:15x14x10+10x14x15:41x5x2", 8_590)])
def test_elements_of_running_tensors(variant, layers, elements):
    assert data._elements(_row(variant, 1, layers=layers)) == elements


@pytest.mark.parametrize("term, kind", [
    ("layer.up.core1", data.PARAMETERS), ("feed-forward: d(layer.up.weight)", data.PARAMETERS),
    ("d(embedding) and others, joined", data.PARAMETERS), ("head's weights", data.PARAMETERS),
    ("gradient of layer.query", data.PARAMETERS), ("embedding", data.PARAMETERS),
    ("feed-forward: T2", data.FEED_FORWARD), ("relu", data.FEED_FORWARD),
    ("feed-forward: attention, normed, permuted", data.FEED_FORWARD),
    ("memory", data.INPUTS), ("memory and hidden states", data.ATTENTION),
    ("attention weights", data.ATTENTION), ("log probabilities", data.SOFTMAX),
    ("hidden + attention", data.NORMS), ("embedded tokens", data.NORMS)])
def test_terms_have_their_kind(term, kind):
    assert data.kind_of(term) == kind


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    rows = [_row("dense", 10 ** 9), _row("dense", 8 * 10 ** 8, batch=4),
            _row("sequential", 14 * 10 ** 8), _row("sequential", 8 * 10 ** 8, batch=4),
            _row("dense", 3 * 10 ** 9, phase="train"),
            _row("fused", 2 * 10 ** 9, phase="train", held_bytes=_held(0)),
            _row("sequential-l2r", 9 * 10 ** 9, phase="train", held_bytes=_held(69_390)),
            _row("sequential-l2r", 4 * 10 ** 9, phase="train", layers=DESCENDING,
                 held_bytes=_held(8_590))]
    source = tmp_path / "run"
    source.mkdir()
    header = ",".join(results.COLUMNS)
    lines = [",".join(_cell(getattr(row, name)) for name in results.COLUMNS) for row in rows]
    (source / "results.csv").write_text("\r\n".join([header, *lines, ""]))
    (source / "run.json").write_text("{}")
    drawn = []
    for out in ("a", "b"):
        paths = transformer_xl.draw_all(str(source), str(tmp_path / out), ("svg",))
        drawn.append([open(path, "rb").read() for path in paths])
    assert drawn[0] == drawn[1]
    stems = {path.rsplit("/", 1)[1] for path in paths}
    assert {"transformer-xl-batch.svg", "transformer-xl-order.svg", "report.html"} <= stems
    assert [v.id for v in transformer_xl.judge(str(source))] == ["C3", "C3a", "C3b", "C3c"]


def _cell(value):
    text = "" if value is None else str(value)
    return f'"{text}"' if "," in text else text


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
