"""The claims report on the committed runs: each verdict again, by hand, from the CSV rows."""

import collections
import csv
import pathlib
import statistics
import sys

import pytest

from plotting import claims
from plotting import paper
from plotting import results as results_lib

_REFERENCE = pathlib.Path("results/reference")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper")
    paper.draw_all(_REFERENCE, out, formats=("svg",))
    return out


@pytest.fixture(scope="module")
def verdicts():
    return {v.id: v for e in paper.present(_REFERENCE)
            for v in e.module.judge(_REFERENCE / e.name)}


def _rows(name):
    with open(_REFERENCE / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _cubes(rows, **wanted):
    """Ok rows of three cubic cores, numbers as such."""
    found = []
    for row in rows:
        if row["status"] == "ok" and row["d"] and row["cores"] == "3" and all(
                row[name] == value for name, value in wanted.items()):
            found.append({name: int(row[name]) for name in (
                "d", "rank", "batch", "weight_bytes", "held_bytes")})
    return found


# What each verdict rests on, from the rows by other code than the report's.

def test_c1_held_bytes_follow_the_formula_with_a_constant(verdicts):
    rows = _rows("crossover/results.csv")
    sequential = _cubes(rows, variant="sequential", phase="train", dtype="float32")
    assert len(sequential) > 20
    for row in sequential:
        d, r, b = row["d"], row["rank"], row["batch"]
        assert row["weight_bytes"] == 4 * d * d * (r * r + 2 * r)
        beyond = row["held_bytes"] - 4 * b * d ** 3 * (2 * r + 1)
        assert beyond == 4 * d * d * (r * r + 2 * r)  # A permuted copy of each core.
    assert verdicts["C1"].verdict == claims.CONSTANT


def test_c2_the_constant_of_the_law_is_no_one(verdicts):
    ks = collections.defaultdict(list)
    for row in _rows("crossover/crossover.csv"):
        if row["variant"] == "sequential" and row["verdict"] == "measured" and row["d"] == "16":
            ks[row["phase"], row["metric"]].append(
                2 * int(row["crossover_batch"]) * int(row["rank"]) / 16 ** 3)
            assert row["crossover_batch"] == row["crossover_batch_model"]
    assert statistics.median(ks["train", "held"]) == pytest.approx(1, abs=0.02)
    assert statistics.median(ks["train", "peak"]) == pytest.approx(4 / 3, abs=0.05)
    assert verdicts["C2"].verdict == claims.CONSTANT


def _ratios(variant, phase, beyond=False):
    ratios = []
    for row in _rows("crossover/results.csv"):
        if (row["variant"].startswith(variant) and row["phase"] == phase
                and row["status"] == "ok" and row["peak_ratio_to_dense"]):
            if beyond and not (row["d"] and row["cores"] == "3" and
                               2 * int(row["batch"]) * int(row["rank"]) > int(row["d"]) ** 3):
                continue
            ratios.append(float(row["peak_ratio_to_dense"]))
    return ratios


def test_c4_naive_trains_at_the_dense_layers_memory(verdicts):
    ratios = _ratios("naive", "train")
    assert len(ratios) > 20 and 1 <= min(ratios) and max(ratios) <= 1.25
    assert verdicts["C4"].verdict == claims.HOLDS


def test_c5_einsum_needs_more_than_dense(verdicts):
    ratios = _ratios("einsum", "train", beyond=True)
    assert len(ratios) > 10 and min(ratios) > 1
    assert verdicts["C5"].verdict == claims.HOLDS


def test_c6_naive_is_right_for_more_cores(verdicts):
    rows = [row for row in _rows("crossover/results.csv")
            if row["variant"] == "naive" and row["cores"] and int(row["cores"]) > 3]
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["cores"] for row in rows} >= {"4", "6"}
    assert max(float(row["max_relative_error"]) for row in rows) < 3e-5
    assert verdicts["C6"].verdict == claims.HOLDS


def _attention(variant, dtype):
    cell = f"attention/{variant}/L52-T52-H600/b64/train/{dtype}/cpu/t2"
    row, = (row for row in _rows("attention/results.csv") if row["cell"] == cell)
    assert row["peak_bytes"] == row["peak_bytes_model"]
    return int(row["peak_bytes"])


def test_c8_is_the_float64_figure(verdicts):
    saved = {dtype: _attention("clones", dtype) - _attention("prealloc-mm", dtype)
             for dtype in ("float32", "float64")}
    assert 64 * 52 * 600 * 52 * 8 / 1e6 == pytest.approx(830.7, abs=0.05)
    assert abs(saved["float64"] / 2 ** 20 / 1634 - 1) < 0.05 < abs(
        saved["float32"] / 2 ** 20 / 1634 - 1)
    assert verdicts["C8"].verdict == claims.CONSTANT


def test_c9_saves_half_of_what_it_applies_to(verdicts):
    # Of each clone the gradInputs of the query's Linear, the second Sum and the Tanh, B H each,
    # and of the first Sum and the SoftMax, B L each.
    saved = _attention("clones", "float32") - _attention("clones-reuse", "float32")
    assert saved == 52 * 64 * 4 * (3 * 600 + 2 * 52)
    assert verdicts["C9"].verdict == claims.HOLDS
    assert verdicts["C9"].measured.startswith("50%")


def test_the_fused_kernel_needs_no_more_than_dense(verdicts):
    rows = _rows("crossover/results.csv")
    dense = {(r["in_modes"], r["out_modes"], r["batch"], r["phase"]): r for r in rows
             if r["variant"] == "dense"}
    above = checked = 0
    for row in rows:
        base = dense.get((row["in_modes"], row["out_modes"], row["batch"], row["phase"]))
        if (row["variant"] == "fused" and row["status"] == "ok" and base
                and row["phase"] in ("train", "inference")
                and 2 * int(row["parameters"]) <= int(base["parameters"])):
            checked += 1
            above += int(row["peak_bytes"]) > int(base["peak_bytes"])
    assert checked > 50 and above == 0
    assert verdicts["fused, memory"].verdict == claims.HOLDS


def _network(**wanted):
    """Ok rows of the network of 16 layers in t3nsor's factors, by batch."""
    return {int(row["batch"]): row for row in _rows("transformer_xl/results.csv")
            if row["layers"] == "16" and row["status"] == "ok" and row["dtype"] == "float32"
            and all(row[name] == value for name, value in wanted.items())}


_ASCENDING = "2x5x41"


def test_c3_the_network_passes_the_threads_ratio_at_inference(verdicts):
    ratios = {}
    for variant in ("sequential", "sequential-l2r"):
        for batch, row in _network(variant=variant, phase="inference", rank="8",
                                   in_modes=_ASCENDING).items():
            assert row["peak_bytes"] == row["peak_bytes_model"]
            assert int(row["parameters"]) == 123_861_458
            ratios[variant, batch] = float(row["peak_ratio_to_dense"])
    dense = _network(variant="dense", phase="inference")
    assert {int(row["parameters"]) for row in dense.values()} == {151_107_538}
    row = _network(variant="sequential", phase="inference", rank="8", in_modes=_ASCENDING)[20]
    assert ratios["sequential", 20] == pytest.approx(
        int(row["peak_bytes"]) / int(dense[20]["peak_bytes"]))
    assert max(ratios.values()) >= 3021 / 2132 and min(ratios.values()) < 1
    assert verdicts["C3"].verdict == claims.HOLDS


def test_c3_the_fused_network_needs_no_more_than_dense(verdicts):
    for phase in ("inference", "train"):
        fused = _network(variant="fused", phase=phase, rank="8", in_modes=_ASCENDING)
        assert len(fused) >= 3
        for batch, row in fused.items():
            assert float(row["peak_ratio_to_dense"]) <= 1, (phase, batch)
    assert verdicts["C3b"].verdict == claims.HOLDS


def test_c3_models_of_the_network_are_exact():
    for row in _rows("transformer_xl/results.csv"):
        for column in ("held_bytes", "forward_peak_bytes", "backward_peak_bytes", "peak_bytes"):
            if row[column] and row[column + "_model"]:
                assert row[column] == row[column + "_model"], (row["cell"], column)


def test_c7_registered_cores_pass_and_plain_ones_do_not(verdicts):
    rows = _rows("replicas/replicas.csv")
    by_keeping = collections.defaultdict(set)
    for row in rows:
        by_keeping[row["keeping"]].add(row["status"])
    assert by_keeping["registered"] == {"ok"} and "failed" in by_keeping["plain"]
    assert {row["check"] for row in rows} >= {"to-dtype", "clone", "save-load", "replicate",
                                              "processes"}
    assert verdicts["C7"].verdict == claims.FAILS  # It is the claim that does not hold.


def test_c10_reshapes_copy_under_einsum_and_not_under_bmm(verdicts):
    copying = collections.defaultdict(set)
    for row in _rows("copies/copies.csv"):
        if row["what"] == "copy" and row["kind"] != "core" and "reshape" in row["operators"]:
            assert row["bytes"] == row["bytes_model"]
            copying[row["variant"]].add(row["cell"])
    cells = collections.defaultdict(set)
    for row in _rows("copies/cells.csv"):
        if row["status"] == "ok":
            cells[row["variant"]].add(row["cell"])
            assert row["copied_bytes"] == row["copied_bytes_model"], row["cell"]
    for variant in ("einsum", "einsum-cores-first"):
        assert cells[variant] and copying[variant] == cells[variant], variant
    assert cells["sequential-bmm"] and not copying["sequential-bmm"]  # It copies cores alone.
    assert cells["fused"] and not copying["fused"]
    assert verdicts["C10"].verdict == claims.CONSTANT


def test_training_curves_agree_within_what_the_controls_allow(verdicts):
    roles = {row["network"]: row["role"] for row in _rows("training/networks.csv")}
    losses = collections.defaultdict(dict)
    for row in _rows("training/steps.csv"):
        losses[row["network"]][int(row["step"])] = float(row["loss_nats"])
    reference = losses[next(n for n, role in roles.items() if role == "reference")]
    controls = [losses[n] for n, role in roles.items() if role == "control"]
    compared = [losses[n] for n, role in roles.items() if role == "compared"]
    assert len(reference) >= 100 and len(controls) == 3 and compared
    most = 0.0
    for step in sorted(reference):
        def off(other, step=step):
            return abs(other[step] - reference[step]) / reference[step]
        most = max(most, *map(off, controls))
        assert max(map(off, compared)) <= 3 * most + 8 * 2 ** -24, step
    assert reference[max(reference)] < reference[1] - 1
    assert verdicts["T1"].verdict == claims.HOLDS


def test_no_decomposed_network_keeps_its_embeddings(verdicts):
    rows = [row for row in _rows("real_weights/embeddings.csv")
            if row["compressed"] == "all" and row["method"] == "tt"
            and float(row["ratio_to_dense"]) < 1]
    assert len(rows) >= 3
    assert all(min(float(row["mean_cosine"]), float(row["spearman"])) < 0.99 for row in rows)
    assert verdicts["W1"].verdict == claims.FAILS


# The report.

def test_every_claim_has_a_row(drawn):
    text = (drawn / "tables" / "claims.md").read_text(encoding="utf-8")
    for name in paper.CLAIMS:
        assert f"| {name} |" in text
    page = (drawn / "report.html").read_text(encoding="utf-8")
    for name in paper.CLAIMS:
        assert f'id="claim-{name.lower()}"' in page
    assert page.count("data:image/svg+xml") >= 5


def test_the_same_rows_give_the_same_bytes(drawn, tmp_path):
    paper.draw_all(_REFERENCE, tmp_path, formats=("svg",))
    for path in sorted(p.relative_to(drawn) for p in drawn.rglob("*") if p.is_file()):
        assert (drawn / path).read_bytes() == (tmp_path / path).read_bytes(), path


def test_a_verdict_names_a_figure_that_is_there(drawn, verdicts):
    for e in paper.present(_REFERENCE):
        stems = [p.stem for p in (drawn / e.name / "plots").glob("*.svg")]
        for v in e.module.judge(_REFERENCE / e.name):
            assert v.figure == "" or any(s.startswith(v.figure) for s in stems), (v.id, v.figure)


def test_an_empty_directory_is_said(tmp_path):
    with pytest.raises(results_lib.ResultsError, match="no experiment's run"):
        paper.draw_all(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
