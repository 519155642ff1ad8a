"""Claims and figures of the attention family on rows worked out by hand."""

import csv
import dataclasses
import pathlib
import sys

import pytest

from plotting import attention
from plotting import attention_claims
from plotting import attention_figures
from plotting import claims
from plotting import results

_REFERENCE = pathlib.Path(__file__).parent.parent / "results" / "reference" / "attention"
BATCH, STEPS, HIDDEN = 64, 52, 600
ITEM = {"float32": 4, "float64": 8}


def _row(variant, *, dtype="float32", source_len=52, peak, measured=None, **fields):
    values = {field.name: ("" if field.type is str else None)
              for field in dataclasses.fields(results.Row)}
    cell = f"attention/{variant}/L{source_len}-T{STEPS}-H{HIDDEN}/b{BATCH}/train/{dtype}/cpu/t2"
    values.update(schema=1, experiment="attention", cell=cell, family="attention", variant=variant,
                  baseline=int(variant == "prealloc-mm"), source_len=source_len, target_len=STEPS,
                  hidden=HIDDEN, layers=0, batch=BATCH, phase="train", dtype=dtype, device="cpu",
                  threads=2, status="ok", peak_bytes=peak if measured is None else measured,
                  peak_bytes_model=peak, time_ns=1e6, peak_ratio_to_dense=2.0)
    values.update(fields)
    return results.Row(**values)


def _pair(dtype, source_len, off=0):
    """Clones beside prealloc-mm, as the arithmetic has them; `off` bytes in what is measured."""
    saved = (STEPS - 1) * ITEM[dtype] * (2 * BATCH * source_len * HIDDEN
                                         + BATCH * (HIDDEN + source_len))
    base = 10 ** 9
    return [_row("clones", dtype=dtype, source_len=source_len, peak=base + saved,
                 measured=base + saved + off),
            _row("prealloc-mm", dtype=dtype, source_len=source_len, peak=base)]


def _results(rows, directory=""):
    return results.Results(str(directory), tuple(rows), (), False, {}, (),
                           {row.cell: i for i, row in enumerate(rows)})


def _verdict(run, name):
    return next(v for v in attention_claims.judge(run) if v.id == name)


# 64 x 52 x 600 elements in 52 clones are 415.3 MB in float32 and 830.7 MB in float64; two such
# variables but one copy of each are 814,694,400 bytes, and 51 copies of B (H + L) elements 8,512,512.
def test_account_is_the_arithmetic():
    run = _results(_pair("float32", 52) + _pair("float64", 52) + _pair("float32", 50))
    by_place = {(a.dtype, a.source_len): a for a in attention_claims.accounts(run)}
    assert len(by_place) == 3
    assert by_place["float32", 52].variable == 415_334_400
    assert by_place["float64", 52].variable == 830_668_800
    assert by_place["float32", 50].variable == 399_360_000
    assert by_place["float32", 52].measured == 814_694_400 + 8_512_512
    assert all(a.exact for a in by_place.values())


def test_float64_meets_the_thread_and_float32_does_not():
    run = _results(_pair("float32", 52) + _pair("float64", 52))
    verdict = _verdict(run, "C8")
    assert verdict.verdict == claims.CONSTANT
    assert "equal to the byte" in verdict.evidence
    assert _verdict(run, "C8, rate").verdict == claims.HOLDS


def test_a_byte_more_is_seen():
    run = _results(_pair("float32", 52, off=1) + _pair("float64", 52))
    assert "differ" in _verdict(run, "C8").evidence
    assert _verdict(run, "C8, rate").verdict == claims.FAILS


def test_nothing_is_guessed():
    run = _results(_pair("float32", 52))
    assert _verdict(run, "C8").verdict == claims.UNKNOWN
    for name in ("C9", "69%", "table"):
        assert _verdict(run, name).verdict == claims.UNKNOWN


_BUFFERS = ("source_len", "hidden", "layers", "batch", "part", "buffer", "operation", "kind",
            "role", "elements", "shared_by_mm", "shared_by_all", "shareable", "reuses_output")


def _write(directory, name, header, records):
    with open(directory / name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *records])


# Two of three operations reuse their output's storage: 50% of their buffers, whatever the rest.
def test_reuse_is_half_of_where_it_applies(tmp_path):
    size = (52, HIDDEN, 0, BATCH, "attention")
    _write(tmp_path, "buffers.csv", _BUFFERS, [
        (*size, "tanh.output", "tanh", "Tanh", "output", 10, 0, 0, 0, 0),
        (*size, "tanh.gradInput", "tanh", "Tanh", "gradInput", 10, 0, 1, 1, 1),
        (*size, "sum1.output", "sum1", "Sum", "output", 4, 0, 1, 1, 0),
        (*size, "sum1.gradInput", "sum1", "Sum", "gradInput", 4, 0, 1, 1, 1),
        (*size, "mm1.gradInput[1]", "mm1", "MM", "gradInput", 100, 1, 1, 1, 0),
        (*size, "sum of d(context)", "", "", "sum of gradients", 100, 0, 0, 1, 0)])
    clones, shared = _pair("float32", 52)
    saved = STEPS * ITEM["float32"] * 14
    run = _results([clones, shared, _row("clones-reuse", peak=clones.peak_bytes - saved)], tmp_path)
    assert attention_claims.reuse(run, "attention") == (3, 2, 28, 14)
    verdict = _verdict(run, "C9")
    assert verdict.verdict == claims.HOLDS
    assert "2 of a step's 3 operations" in verdict.evidence
    run_off = _results([clones, shared, _row("clones-reuse", peak=clones.peak_bytes - saved + 1)],
                       tmp_path)
    assert _verdict(run_off, "C9").verdict == claims.FAILS
    # Sums of gradients are no output or gradInput tensors.
    assert [s[1:3] for s in attention_claims.shares(run)] == [(5, 4)]


# Four buffers in 50 clones that make up the 0.7 GB of the table's first row; the first patch shares
# half of them, its sequel all, which leaves one clone's.
def test_published_table_with_its_shares(tmp_path):
    parameters = (2 * 50_000 * 500 + 50_000 * 101 + 3 * 100 ** 2
                  + 400 * (500 + 1 + 100) + 400 * (600 + 1 + 100))
    fixed = 2 * 4 * parameters + 4 * (4 * 64 * 50_000 + 64 * 100)
    steps = 50
    each = (700_000_000 - fixed) // (4 * 4 * steps)
    size = (50, 100, 1, 64)
    records = []
    for part in ("encoder", "decoder"):
        records += [(*size, part, "a", "a", "MM", "gradInput", each, 1, 1, 1, 0),
                    (*size, part, "b", "b", "Linear", "output", each, 0, 1, 1, 0)]
    _write(tmp_path, "buffers.csv", _BUFFERS, records)
    run = _results(_pair("float32", 52), tmp_path)
    row, = attention_claims.decoder(run)
    assert row.name == "1x100"
    before, after = row.explained
    assert before == pytest.approx(1, abs=1e-6)
    assert after == pytest.approx((fixed + (0.7e9 - fixed) / steps) / 0.5e9, abs=1e-6)
    first, everything, published = row.drops
    assert everything == pytest.approx(2 * first)
    assert everything == pytest.approx((0.7e9 - fixed) * 49 / 50 / 1e9, abs=1e-6)
    assert published == pytest.approx(0.2)
    assert _verdict(run, "table").verdict == claims.HOLDS


# What README and docs/attention.md say, from the committed rows.
def test_committed_run():
    run = results.load(str(_REFERENCE))
    assert {row.status for row in run.rows} == {"ok"}
    assert {v.id: v.verdict for v in attention_claims.judge(run)} == {
        "C8": claims.CONSTANT, "C8, rate": claims.HOLDS, "C9": claims.HOLDS,
        "69%": claims.CONSTANT, "table": claims.CONSTANT}
    accounts = attention_claims.accounts(run)
    assert {(a.dtype, a.source_len) for a in accounts} == {
        ("float32", 50), ("float32", 52), ("float64", 52)}
    assert all(a.exact for a in accounts)
    decoders = attention_claims.decoder(run)
    assert [row.name for row in decoders] == ["1x100", "1x250", "1x500", "2x500", "4x1000"]
    assert all(None not in row.measured and row.measured == row.cell for row in decoders)
    # Every measured figure has the model's beside it, and is it.
    for row in run.rows:
        assert row.peak_bytes == row.peak_bytes_model, row.cell
        assert row.backward_peak_bytes == row.backward_peak_bytes_model, row.cell


@pytest.mark.parametrize("variant, term, kind", [
    ("clones", "mm1.gradInput[1]", 1), ("clones", "mm2.gradInput[2]", 1),
    ("clones", "mm2.gradInput[1]", 3), ("prealloc-mm", "sum of d(context)", 2),
    ("autograd", "sum of d(context)", 6), ("clones", "tanh.output", 4),
    ("additive", "tanh(keys + q)", 5), ("clones", "context", 0), ("autograd", "W_a", 0)])
def test_terms_have_kinds(variant, term, kind):
    assert attention_figures.kind_of(_row(variant, peak=1), term) == kind


def test_everything_is_drawn(tmp_path):
    rows = _pair("float32", 52) + _pair("float64", 52)
    for steps in (1, 13):
        rows += [dataclasses.replace(row, target_len=steps, cell=f"{row.cell}-{steps}")
                 for row in _pair("float32", 52)]
    rows.append(_row("sdpa", peak=10 ** 8, peak_bytes_model=None))
    with open(tmp_path / "results.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(results.COLUMNS)
        for row in rows:
            writer.writerow(["" if v is None else v for v in dataclasses.astuple(row)])
    _write(tmp_path, "terms.csv", ("cell", "term", "buffers", "bytes"),
           [(row.cell, "mm1.gradInput[1]", 52, row.peak_bytes) for row in rows[:2]])
    paths = attention.draw_all(str(tmp_path), formats=("svg",))
    stems = {path.rsplit("/", 1)[1].split(".")[0] for path in paths}
    assert {"attention-steps", "attention-bytes", "attention-ratios", "attention-axes", "account",
            "variants", "claims", "report"} <= stems
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "415.3 MB in float32 and 830.7 MB in float64" in report


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
