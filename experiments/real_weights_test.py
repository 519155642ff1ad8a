"""Runs //experiments:real_weights from end to end, on little of everything."""

import csv
import pathlib
import signal
import subprocess
import sys
import time

import pytest

_HERE = pathlib.Path(__file__).parent
_WEIGHTS = "--weights=" + sys.argv[1] if len(sys.argv) > 1 else ""
_SMALL = ("--preset=quick", "--cores=3", "--ranks=8,512", "--layers=0,5", "--sentences=6",
          "--shares=0.05", "--alone-share=0.05", "--batch=2", "--repetitions=2", "--threads=1")


def _command(*flags):
    return [_HERE / "real_weights", _WEIGHTS, *flags]


def _rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("real_weights") / "run"
    done = subprocess.run(_command(*_SMALL, f"--out={out}"), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    return out


def test_the_encoder_is_checked(run):
    assert [row["status"] for row in _rows(run / "checks.csv")] == ["ok", "ok"]


# Dense: 384 * 1536 elements. Full rank of 6x8x8 by 8x12x16: 48 * 48 + 48 * 96 * 128 + 128 * 128.
def test_full_rank_loses_nothing(run):
    whole = [r for r in _rows(run / "embeddings.csv")
             if r["compressed"] == "all" and r["rank"] == "128" and r["cores"] == "3"]
    assert len(whole) == 1
    assert float(whole[0]["ratio_to_dense"]) == pytest.approx(608512 / 589824)
    for column in ("mean_cosine", "worst_cosine", "spearman"):
        assert float(whole[0][column]) == pytest.approx(1, abs=1e-6)
    exact = [r for r in _rows(run / "matrices.csv")
             if r["rank"] == ("384" if r["method"] == "svd" else "128")]
    assert {(r["method"], r["layer"], r["matrix"]) for r in exact} == {
        (method, layer, matrix) for method in ("svd", "tt") for layer in "05"
        for matrix in ("up", "down")}
    assert all(float(r["relative_error"]) < 1e-6 for r in exact)


# Eckart and Young: no two factors of that rank are nearer, and the layer of two cores is them.
def test_svd_layers_are_the_best_of_their_rank(run):
    for row in _rows(run / "matrices.csv"):
        if row["method"] == "svd":
            assert row["svd_rank"] == row["rank"]
            assert float(row["relative_error"]) == pytest.approx(
                float(row["svd_relative_error"]), abs=1e-6)


def test_every_variant_ran_or_says_why_not(run):
    rows = _rows(run / "passes.csv")
    assert {r["variant"] for r in rows} == {"dense", "dense-onednn", "naive", "sequential", "fused",
                                            "fused-panel", "auto"}
    for row in rows:
        assert row["status"] == "ok", row
        # The encoder's weights in float32: all but the matrices, and those as they are.
        assert int(row["weight_bytes"]) - int(row["feed_forward_bytes"]) == 61948416
        assert int(row["peak_bytes"]) > int(row["weight_bytes"])
        assert float(row["time_ratio_to_dense"]) > 0


def test_report_is_there(run):
    assert (run / "report.html").is_file()
    assert (run / "tables" / "claims.md").is_file()


@pytest.mark.parametrize("flag, words", [
    ("--preset=none", "no preset is named 'none'; there are default, quick"),
    ("--ranks=0", "--ranks"), ("--layers=6", "they are 0 to 5"), ("--shares=half", "--shares"),
    ("--sentences=1000", "there are 256"), ("--color=red", "color")])
def test_bad_flags_are_one_sentence(tmp_path, flag, words):
    out = tmp_path / "run"
    done = subprocess.run(_command("--preset=quick", f"--out={out}", flag), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not out.exists()


def test_a_stopped_run_keeps_its_rows(tmp_path):
    process = subprocess.Popen(_command(*_SMALL, f"--out={tmp_path}"), stderr=subprocess.PIPE,
                               text=True)
    deadline = time.monotonic() + 100
    matrices = tmp_path / "matrices.csv"
    while not matrices.is_file() or len(matrices.read_text(encoding="utf-8").splitlines()) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert f"all finished rows are kept in {tmp_path}" in words
    assert all(row["svd_relative_error"] for row in _rows(matrices))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
