import dataclasses
import sys

import pytest

from plotting import analysis
from plotting import claims
from plotting import results
from plotting import synthetic
from plotting import tables


@pytest.fixture(scope="module")
def swept():
    return synthetic.sweep(ds=(8, 16), ranks=(2, 4, 8), batches=(1, 16, 256, 4096))


def _results(rows, crossovers=()):
    return results.Results("", tuple(rows), tuple(crossovers), bool(crossovers), {}, (),
                           {row.cell: i for i, row in enumerate(rows)})


def _change(rows, match, **changes):
    changed = [dataclasses.replace(row, **{
        name: value(row) for name, value in changes.items()}) if match(row) else row
        for row in rows]
    assert changed != list(rows)
    return changed


@pytest.mark.parametrize("phase, metric, expected", [
    # B r 2 d^3 + d^2 (r^2 + 2r) 2 > d^6, that is B > 255.375.
    ("train", "held", 256),
    # (3r - 1) B d^3 + d^2 (r^2 + 2r) > d^6: B > 177.87.
    ("inference", "peak", 178),
    # 3r B d^3 + 2 d^2 (r^2 + 2r) > 2 d^6: B > 340.92.
    ("train", "peak", 341),
    # ... and two more copies of each weight under Adam: B > 681.8.
    ("step-adam", "peak", 682),
])
def test_the_synthetic_crossovers_are_those_worked_out_by_hand(phase, metric, expected):
    point = synthetic.crossover("sequential", phase, metric, 16, 8)
    assert point.crossover_batch == expected
    assert point.claim_batch == 257


def test_k_is_two_b_r_over_d_cubed(swept):
    found = {(c.variant, c.phase, c.metric): c for c in claims.constants(
        _results(*swept))}
    assert found["sequential", "train", "held"].verdict == claims.HOLDS
    assert 1.0 in found["sequential", "train", "held"].ks  # d = 16, r = 8: B = 256
    peak = found["sequential", "train", "peak"]
    assert peak.verdict == claims.CONSTANT
    assert peak.median == pytest.approx(4 / 3, abs=0.02)
    assert found["sequential", "inference", "peak"].median == pytest.approx(
        2 * 4 / (3 * 4 - 1), abs=0.05)
    assert found["fused", "train", "held"].verdict == "never more"
    assert found["naive", "train", "held"].verdict == "always more"


def test_k_is_judged_where_tt_has_few_parameters():
    rows, points = synthetic.sweep(ds=(8,), ranks=(2, 4, 32), variants=("sequential",))
    held, = [c for c in claims.constants(_results(rows, points)) if c.metric == "held"]
    # At r = 32 the cores' two copies are half of the dense weights: (8^6 - 2 * 69632)
    # / (2 * 32 * 8^3) = 3.75, so B = 4 and k = 1/2; the thread says B = 9.
    assert min(held.ks) == 0.5 and held.verdict == claims.HOLDS


def test_verdicts_of_the_synthetic_sweep(swept):
    verdicts = {v.id: v.verdict for v in claims.judge(_results(*swept))}
    assert verdicts == {"C1": claims.CONSTANT, "C2": claims.CONSTANT, "C4": claims.HOLDS,
                        "C5": claims.HOLDS, "C6": claims.UNKNOWN, "fused, memory": claims.HOLDS,
                        "fused, time": claims.CONSTANT}


def _fused(row):
    return row.variant == "fused" and row.ok


def test_one_cell_above_dense_refutes_the_kernels_memory(swept):
    place = next(row.cell for row in swept[0] if _fused(row) and row.rank == 2)
    rows = _change(swept[0], lambda row: row.cell == place,
                   peak_bytes=lambda row: 100 * row.peak_bytes)
    verdict = claims.fused_memory(_results(rows))
    assert verdict.verdict == claims.FAILS
    assert "more than dense in 1 of" in verdict.evidence


def test_a_kernel_that_is_fastest_everywhere_and_nowhere(swept):
    fast = _change(swept[0], lambda row: _fused(row) and row.time_ns, time_ns=lambda row: 1.0)
    assert claims.fused_time(_results(fast)).verdict == claims.HOLDS
    slow = _change(swept[0], lambda row: row.variant in claims.KERNELS and row.time_ns,
                   time_ns=lambda row: 1e12)
    assert claims.fused_time(_results(slow)).verdict == claims.FAILS


def test_nothing_is_claimed_of_an_empty_run():
    assert {v.verdict for v in claims.judge(_results([]))} == {claims.UNKNOWN}


def test_c1_holds_exactly_where_nothing_else_is_held(swept):
    rows = [row for row in swept[0] if row.variant in ("dense", "sequential")]
    exact = _change(rows, lambda row: row.variant == "sequential" and row.held_bytes,
                    held_bytes=lambda row: row.held_bytes - row.weight_bytes)
    assert claims.formulas(_results(exact)).verdict == claims.HOLDS


def test_c1_fails_when_one_weight_is_four_bytes_off(swept):
    rows = _change(swept[0], lambda row: row.cell == swept[0][5].cell,
                   weight_bytes=lambda row: row.weight_bytes + 4)
    assert claims.formulas(_results(rows)).verdict == claims.FAILS


def test_c1_reads_the_slopes(swept):
    forms = {h.variant: h.form for h in claims.held(_results(swept[0]))}
    assert forms["dense"] == "1" and forms["fused"] == "1"
    assert forms["sequential"] == "2r + 1" and forms["sequential-l2r"] == "2r + 2"
    bent = _change(swept[0], lambda row: row.variant == "sequential" and row.batch == 16
                   and row.held_bytes, held_bytes=lambda row: row.held_bytes + 4)
    forms = {h.variant: h.form for h in claims.held(_results(bent))}
    assert forms["sequential"] == "not linear in B"


def test_c2_fails_where_k_is_no_constant(swept):
    points = [dataclasses.replace(p, crossover_batch=300) for p in swept[1]
              if p.variant == "sequential"]
    assert claims.law(_results([], points)).verdict == claims.FAILS


def test_c2_holds_where_all_cross_at_the_threads_batch(swept):
    points = [dataclasses.replace(p, crossover_batch=p.claim_batch) for p in swept[1]
              if p.variant == "sequential"]
    assert claims.law(_results([], points)).verdict == claims.HOLDS


def test_c2_from_the_cells_alone(swept):
    # Steps of 16 between the batches: each crossover lies in the same step as the
    # thread's B, so these cells cannot tell k = 4/3 or 2/3 from k = 1.
    coarse = [row for row in swept[0] if row.variant in ("dense", "sequential")]
    assert claims.law(_results(coarse)).verdict == claims.HOLDS
    # Steps of 1.25 around them can.
    fine = synthetic.sweep(ds=(16,), ranks=(4, 8), variants=("sequential",), batches=(
        1, 150, 188, 234, 293, 366, 458, 572, 715, 894))[0]
    assert claims.law(_results(fine)).verdict == claims.CONSTANT


@pytest.mark.parametrize("factor, verdict", [
    (1, claims.HOLDS), (2, claims.CONSTANT), (4, claims.FAILS)])
def test_c4_turns_with_the_naive_peak(swept, factor, verdict):
    rows = [dataclasses.replace(row, peak_bytes=row.peak_bytes * factor)
            if row.variant == "naive" else row for row in swept[0]]
    assert claims.naive(_results(rows)).verdict == verdict


def test_c5_turns_when_einsum_needs_little(swept):
    def beyond(row):
        return row.variant.startswith("einsum") and row.phase == "train"
    low = _change(swept[0], beyond, peak_bytes=lambda row: 4)
    assert claims.einsum(_results(low)).verdict == claims.FAILS
    nearly = _change(
        swept[0], lambda row: beyond(row) and 1 < 2 * row.batch * row.rank / row.d ** 3 <= 2,
        peak_bytes=lambda row: 4)
    verdict = claims.einsum(_results(nearly))
    assert verdict.verdict == claims.CONSTANT and "2Br = 2.00 d³" in verdict.evidence


def test_c6_needs_a_naive_row_of_four_cores():
    four = [8] * 4
    row = synthetic.row("naive", four, four, [1, 4, 8, 4, 1], 64, "train")
    assert claims.cores(_results([row])).verdict == claims.HOLDS
    wrong = dataclasses.replace(row, status="wrong")
    assert claims.cores(_results([wrong])).verdict == claims.FAILS
    skipped = dataclasses.replace(row, status="skipped")
    assert claims.cores(_results([skipped])).verdict == claims.UNKNOWN


def test_the_model_check_counts_and_names_each_mismatch(swept):
    rows = swept[0]
    check = analysis.check_model(_results(rows))
    assert (check.checked, check.equal, check.mismatches) == (len(rows), len(rows), ())
    bent = _change(rows, lambda row: row.cell == rows[3].cell,
                   peak_bytes=lambda row: row.peak_bytes + 64)
    check = analysis.check_model(_results(bent))
    assert check.equal == len(rows) - 1
    (row, column, measured, model), = check.mismatches
    assert (row.cell, column, measured - model) == (rows[3].cell, "peak_bytes", 64)


def test_the_crossover_table_has_measured_model_thread_and_k(swept):
    table = tables.crossovers(_results(*swept))
    row, = [r for r in table.rows if r[:3] == ("sequential", "training", "peak")
            and r[3].startswith("16x") and r[4] == "8"]
    assert row[6:] == ("341", "341", "257", "1.332")


def test_latex_escapes_what_latex_reads():
    table = tables.Table("t", "50% of a_b", "", ("x", "y"), (("a & b", "d³ → 1"),))
    text = table.latex()
    assert r"50\% of a\_b" in text and r"a \& b & d$^3$ $\to$ 1 \\" in text


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
