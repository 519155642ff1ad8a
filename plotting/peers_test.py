import dataclasses
import os
import sys

import pytest

from plotting import peers
from plotting import results
from plotting import synthetic

CUBE, RANKS = [8, 8, 8], [1, 4, 4, 1]


def _row(variant, time_ns=None, peak_bytes=1000, batch=1, phase="inference", modes=CUBE,
         status="ok", reason=""):
    row = synthetic.row(variant, modes, modes, RANKS, batch, phase, status=status, reason=reason,
                        experiment="peers")
    if status != "ok":
        return row
    return dataclasses.replace(row, time_ns=time_ns, peak_bytes=peak_bytes)


def _by_target(rows):
    return {v.target: v for v in peers.judge(peers.compare(rows))}


def test_geometric_mean():
    assert peers.geometric_mean([2, 8]) == pytest.approx(4)
    assert peers.geometric_mean([0.5, 2]) == pytest.approx(1)


def test_means_are_over_the_cells_of_a_phase_and_a_peer():
    rows = [_row("fused", 10, batch=1), _row("peer-a", 20, batch=1), _row("peer-b", 50, batch=1),
            _row("fused", 10, batch=2), _row("peer-a", 80, batch=2), _row("peer-b", 50, batch=2),
            _row("fused", 10, phase="train"), _row("peer-a", 1000, phase="train")]
    found = _by_target(rows)
    # sqrt(2 * 8) = 4, which is the target; 5; and the best peers are 2 and 5 times slower.
    a = found["forward, against peer-a: at least 4 times as fast"]
    assert a.figure == "4.00 times, over 2 cells" and a.met
    assert found["forward, against peer-b: at least 4 times as fast"].figure.startswith("5.00")
    best = found["forward, against the best peer of each cell: at least 2.5 times as fast"]
    assert best.figure.startswith("3.16") and best.met
    assert found["training, against peer-a: at least 3 times as fast"].figure.startswith("100.00")
    assert found["training, against peer-b: at least 3 times as fast"].words == "not measured"


def test_a_mean_below_its_target_is_not_met():
    rows = [_row("fused", 10), _row("peer-a", 39)]
    assert _by_target(rows)["forward, against peer-a: at least 4 times as fast"].words == "not met"


def test_lost_cells_are_counted_and_listed():
    rows = [_row("fused", 10, 100, batch=1), _row("peer-a", 9, 400, batch=1),
            _row("fused", 10, 100, batch=2), _row("peer-a", 40, 80, batch=2),
            _row("fused", 10, 100, batch=3), _row("peer-a", 40, 100, batch=3)]
    comparison = peers.compare(rows)
    found = {v.target: v for v in peers.judge(comparison)}
    assert found["no cell in which a peer is faster"].figure == "1 of 3"
    assert found["no cell in which a peer is faster"].words == "not met"
    assert found["no cell in which a peer needs less memory"].figure == "1 of 3"
    assert [cell.batch for cell in peers.slower_cells(comparison)] == [1]
    assert [cell.batch for cell in peers.fatter_cells(comparison)] == [2]
    text = peers.markdown(comparison)
    assert ("| 8x8x8:8x8x8, ranks 1x4x4x1, B = 1 | forward | fused | peer-a | 0.01 | 0.009 | 0.90 |"
            in text)
    assert "| 100 | 80 | 1.250 |" in text


def test_the_none_targets_can_be_met():
    found = _by_target([_row("fused", 10, 100), _row("peer-a", 10, 100)])
    assert found["no cell in which a peer is faster"].words == "met"
    assert found["no cell in which a peer needs less memory"].words == "met"


def test_ours_is_auto_where_it_ran_else_the_faster_fused_kernel():
    rows = [_row("fused", 10), _row("fused-panel", 5), _row("peer-a", 20)]
    assert peers.compare(rows).cells[0].ours.variant == "fused-panel"
    rows.append(_row("auto", 12))
    assert peers.compare(rows).cells[0].ours.variant == "auto"
    rows[-1] = _row("auto", status="timeout", reason="ran past --cell-timeout")
    assert peers.compare(rows).cells[0].ours.variant == "fused-panel"


def test_other_variants_are_neither_ours_nor_peers():
    rows = [_row("fused", 10), _row("peer-a", 20), _row("sequential", 1), _row("dense", 1)]
    cell, = peers.compare(rows).cells
    assert cell.best_peer == "peer-a"


def test_a_peer_that_failed_is_in_no_mean_and_is_listed():
    rows = [_row("fused", 10, batch=1), _row("peer-a", 40, batch=1),
            _row("fused", 10, batch=2),
            _row("peer-a", batch=2, status="oom", reason="an allocation failed")]
    comparison = peers.compare(rows)
    assert len(comparison.cells) == 1
    assert "an allocation failed" in peers.markdown(comparison)


def test_draws_the_same_bytes_from_the_same_rows(tmp_path):
    rows = [_row(variant, time_ns * batch, 1000 * batch, batch, phase, modes)
            for phase in ("inference", "train") for batch in (1, 32) for modes in (CUBE, [16] * 3)
            for variant, time_ns in (("fused", 10), ("peer-a", 15), ("peer-b", 90))]
    rows = [row for row in rows if (row.phase, row.variant) != ("train", "peer-b")]
    figures = []
    for name in ("one", "two"):
        synthetic.write(tmp_path / name, rows)
        text, paths = peers.draw_all(tmp_path / name, formats=("svg",))
        assert all(os.path.getsize(path) for path in paths)
        assert text == (tmp_path / name / "summary.md").read_text(encoding="utf-8")
        figures.append((tmp_path / name / "plots" / "peers.svg").read_bytes())
    assert figures[0] == figures[1]


def test_a_run_without_peers_is_refused(tmp_path):
    synthetic.write(tmp_path, [_row("fused", 10)])
    with pytest.raises(results.ResultsError, match="no cell"):
        peers.draw_all(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
