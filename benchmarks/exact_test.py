"""The exact part of the gate, and how its findings are shown, on rows from closed formulas."""

import dataclasses
import json
from xml.etree import ElementTree

import pytest

from benchmarks import exact
from benchmarks import verdicts
from plotting import synthetic

CUBE = [16, 16, 16]
RANKS = [1, 8, 8, 1]
BATCH = 300
X_BYTES = 4 * BATCH * 16 ** 3
MATRIX_BYTES = 4 * 16 ** 6


def _row(variant="sequential", batch=BATCH, **changes):
    return dataclasses.replace(synthetic.row(variant, CUBE, CUBE, RANKS, batch, "train"),
                               **changes)


def _more(row, columns, difference):
    """The row with more bytes in these columns, measured and by the model."""
    return dataclasses.replace(row, **{
        name: getattr(row, name) + difference
        for column in columns for name in (column, column + "_model")})


def _compare(old, new, other_machine=False):
    return exact.compare({row.cell: row for row in old}, {row.cell: row for row in new},
                         other_machine)


def _verdicts(findings):
    return {(finding.kind, finding.verdict) for finding in findings}


def test_a_row_is_the_same_as_itself():
    assert _verdicts(_compare([_row()], [_row()])) == {("memory", "same"), ("flops", "same")}


@pytest.mark.parametrize("variant", ["dense", "naive", "einsum", "sequential", "fused"])
@pytest.mark.parametrize("tensor_bytes, name", [
    (X_BYTES, "1 × x or y"), (MATRIX_BYTES, "1 × the dense matrix"),
    # Behind the last core and behind the second: r B d^3 both.
    (8 * X_BYTES, "1 × the intermediate behind core 3 or the intermediate behind core 2")])
def test_an_extra_copy_of_a_tensor_is_always_found(variant, tensor_bytes, name):
    old = _row(variant)
    for columns in (["held_bytes", "backward_peak_bytes", "peak_bytes"], ["forward_peak_bytes"],
                    ["held_bytes"], ["peak_bytes"]):
        memory = _compare([old], [_more(old, columns, tensor_bytes)])[0]
        assert (memory.kind, memory.verdict) == ("memory", "more memory")
        assert memory.after - memory.before == tensor_bytes
        for column in columns:
            assert f"{column} {getattr(old, column):,} → " in memory.words
        if variant != "dense" or "intermediate" not in name:
            assert name in memory.words


def test_one_byte_is_a_regression_and_one_less_is_not():
    old = _row()
    assert ("memory", "more memory") in _verdicts(_compare([old], [_more(old, ["peak_bytes"], 1)]))
    assert ("memory", "less memory") in _verdicts(_compare([old], [_more(old, ["peak_bytes"], -1)]))


def test_less_held_and_a_higher_peak_is_a_regression():
    old = _row()
    new = _more(_more(old, ["held_bytes"], -1000), ["peak_bytes"], 10)
    memory = _compare([old], [new])[0]
    assert memory.verdict == "more memory" and memory.column == "peak_bytes"
    assert "(-1,000)" in memory.words and "(+10)" in memory.words


def test_flops_are_exact_too():
    old = _row()
    more, fewer = (dataclasses.replace(old, flops_model=old.flops_model + d) for d in (2, -2))
    assert ("flops", "more FLOPs") in _verdicts(_compare([old], [more]))
    assert ("flops", "fewer FLOPs") in _verdicts(_compare([old], [fewer]))


def test_on_another_machine_only_what_is_modelled_counts():
    old = _row(forward_peak_bytes_model=None)
    new = dataclasses.replace(old, forward_peak_bytes=old.forward_peak_bytes + 64)
    assert ("memory", "more memory") in _verdicts(_compare([old], [new]))
    assert ("memory", "same") in _verdicts(_compare([old], [new], other_machine=True))
    modelled = _more(_row(), ["peak_bytes"], 64)
    assert ("memory", "more memory") in _verdicts(
        _compare([_row()], [modelled], other_machine=True))


@pytest.mark.parametrize("variant", exact.TILED_BY_MACHINE)
def test_on_another_machine_tiles_may_differ_but_not_what_is_held(variant):
    old = _row(variant)
    tiles = _more(old, ["forward_peak_bytes", "backward_peak_bytes", "peak_bytes"], 4096)
    assert ("memory", "more memory") in _verdicts(_compare([old], [tiles]))
    assert ("memory", "same") in _verdicts(_compare([old], [tiles], other_machine=True))
    held = _more(old, ["held_bytes"], X_BYTES)
    assert ("memory", "more memory") in _verdicts(_compare([old], [held], other_machine=True))


def test_a_figure_that_is_no_longer_there_is_said():
    memory = _compare([_row()], [_row(held_bytes=None)])[0]
    assert memory.verdict == "ambiguous" and "no figure" in memory.words


def test_a_run_of_times_alone_says_nothing_of_memory():
    nothing = {name: None for column in exact.analysis.BYTE_COLUMNS
               for name in (column, column + "_model")}
    assert _verdicts(_compare([_row()], [_row(**nothing)])) == {("flops", "same")}


def test_what_auto_picks_by_other_rates_is_not_a_regression():
    old = _row(variant="auto", algorithm="fused")
    new = dataclasses.replace(_more(old, ["peak_bytes"], 4096), algorithm="fused-panel")
    finding, = _compare([old], [new])
    assert finding.verdict == "ambiguous" and "fused-panel" in finding.words
    # Of any other variant it is.
    old, new = (dataclasses.replace(row, variant="einsum") for row in (old, new))
    finding = _compare([old], [new])[0]
    assert finding.verdict == "more memory" and "algorithm was fused" in finding.words


@pytest.mark.parametrize("old, new, verdict", [
    ("ok", ("crashed", "ended by SIGSEGV"), "now fails"),
    ("ok", ("oom", "12 GiB budget"), "now fails"),
    ("ok", ("skipped", "no path for these modes"), "now fails"),
    ("ok", ("skipped", "predicted to need 3 GiB; the limit is 2 GiB"), "ambiguous"),
    ("skipped", ("crashed", "ended by SIGSEGV"), "now fails"),
    ("oom", ("timeout", "ended after 60 s"), "ambiguous"),
    ("oom", ("oom", ""), "same"),
    ("oom", ("ok", ""), "new"),
])
def test_how_a_cell_ends(old, new, verdict):
    findings = _compare([_row(status=old)], [_row(status=new[0], reason=new[1])])
    assert [f.verdict for f in findings] == [verdict]
    assert verdict == "same" or new[1] in findings[0].words


def test_a_wrong_cell_names_its_allocations_and_its_figures():
    old = _row()
    reason = "held_bytes is 5, the model says 4: an allocation of 1 by mm"
    new = dataclasses.replace(_more(old, ["held_bytes"], X_BYTES), status="wrong", reason=reason)
    finding, = _compare([old], [new])
    assert finding.verdict == "now fails"
    assert reason in finding.words and "1 × x" in finding.words


def test_cells_of_one_side_alone():
    findings = _compare([_row(batch=1), _row(batch=2)], [_row(batch=2), _row(batch=4)])
    assert {(f.cell.split("/")[4], f.verdict) for f in findings if f.kind == "status"} == {
        ("b1", "gone"), ("b4", "new")}


def test_rows_without_modes_are_compared_all_the_same():
    old = _row(family="attention", in_modes="", out_modes="", ranks="")
    memory = _compare([old], [_more(old, ["peak_bytes"], old.weight_bytes)])[0]
    assert memory.verdict == "more memory" and "1 × the parameters" in memory.words


@pytest.mark.parametrize("change, words", [
    ({}, ""),
    ({"cores": 8}, "cores was 2, is 8"),
    ({"kernel": "Linux 6.2"}, ""),
    ({"vector_extensions": "AVX2"}, "vector_extensions was AVX2, AVX-512, is AVX2"),
])
def test_machines_differ_in_what_changes_figures(change, words):
    other = {**synthetic.RUN, "machine": {**synthetic.RUN["machine"], **change}}
    assert exact.difference_of_machines(synthetic.RUN, other) == words


def test_machines_differ_in_libtorch_and_by_being_unknown():
    assert exact.difference_of_machines(
        synthetic.RUN, {**synthetic.RUN, "libtorch": "2.12.0"}) == "libtorch was 2.11.0, is 2.12.0"
    assert "not known" in exact.difference_of_machines(synthetic.RUN, {})


# ---- How it is shown

FINDINGS = [
    exact.Finding("linear/a/b1", "memory", "same"),
    exact.Finding("linear/a/b1", "time", "slower", "time_ratio_to_dense", 1.0, 1.1, "p = 0.0001"),
    exact.Finding("linear/b/b1", "memory", "more memory", "peak_bytes", 1000, 1010, "+10"),
    exact.Finding("linear/c/b1", "memory", "more memory", "peak_bytes", 1000, 2000, "a|b\x1b"),
    exact.Finding("linear/d/b1", "status", "now fails", words="crashed"),
    exact.Finding("linear/e/b1", "time", "faster", "time_ratio_to_dense", 1.0, 0.5),
    exact.Finding("linear/f/b1", "time", "ambiguous", "time_ratio_to_dense", 1.0, 3.0),
]


def test_the_worst_comes_first():
    cells = [finding.cell[7] for finding in verdicts.by_importance(FINDINGS)]
    assert cells == ["d", "c", "b", "a", "f", "e", "a"]
    assert verdicts.counts(FINDINGS) == {"now fails": 1, "more memory": 2, "slower": 1,
                                         "ambiguous": 1, "faster": 1}
    text = verdicts.terminal(FINDINGS, ["a note"])
    assert text.index("linear/d") < text.index("linear/c") < text.index("linear/a")
    assert text.splitlines()[-1].startswith("6 cells: 1 now fails, 2 more memory")


def test_markdown_is_a_table_and_folds_what_is_long():
    text = verdicts.markdown(FINDINGS, ["a note"], ("A", "B"), True)
    assert text.startswith("## Regression\n")
    assert ("| more memory | linear/c/b1 | peak_bytes | 1000 B → 1.953 KiB | +100.0% | a\\|b"
            in text)
    many = [dataclasses.replace(FINDINGS[2], cell=f"cell-{i}") for i in range(100)]
    assert verdicts.markdown(many, [], ("A", "B"), True).count("<details>") == 1


def test_junit_fails_what_regressed_and_is_xml():
    text = verdicts.junit(FINDINGS, exact.REGRESSIONS)
    suite = ElementTree.fromstring(text.encode()).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("7", "4")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["linear/d/b1", "linear/c/b1", "linear/b/b1", "linear/a/b1"]
    assert len(suite.findall("testcase/skipped")) == 1


def test_json_has_every_finding():
    read = json.loads(verdicts.as_json(FINDINGS, ["a note"], ("A", "B"), {"exit_code": 1}))
    assert len(read["findings"]) == 7 and read["exit_code"] == 1
    assert read["findings"][0]["verdict"] == "now fails"
