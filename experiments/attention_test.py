"""Runs //experiments:attention from end to end on its smallest sizes.

Memory alone: the time of a cell with two threads depends on what else the machine does.
"""

import csv
import pathlib
import subprocess
import sys

import pytest

_ATTENTION = pathlib.Path(__file__).parent / "attention"


def _run(*flags):
    return subprocess.run([_ATTENTION, "--experiment=attention", *flags],
                          capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("attention") / "run"
    done = _run("--preset=smoke", "--measure=memory", "--threads=2", f"--out={out}", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    return out


def _records(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_byte_is_the_models(smoke):
    rows = _records(smoke / "results.csv")
    assert {row["status"] for row in rows} == {"ok"}
    assert len({row["variant"] for row in rows}) == 13
    for row in rows:
        for column in ("weight_bytes", "held_bytes", "forward_peak_bytes", "backward_peak_bytes",
                       "peak_bytes"):
            assert row[column] == row[column + "_model"], (row["cell"], column)


# B = 4, L = 12, H = 48, T = 8, in float32: T - 1 copies of two tensors B L H, and of B (H + L).
def test_sharing_saves_what_the_arithmetic_says(smoke):
    rows = {row["cell"]: int(row["peak_bytes"]) for row in _records(smoke / "results.csv")}
    place = "attention/{}/L12-T8-H48/b4/train/{}/cpu/t2"
    for dtype, item in (("float32", 4), ("float64", 8)):
        saved = rows[place.format("clones", dtype)] - rows[place.format("prealloc-mm", dtype)]
        assert saved == 7 * item * (2 * 4 * 12 * 48 + 4 * (48 + 12))


def test_terms_add_up_to_the_peaks(smoke):
    sums = {}
    for record in _records(smoke / "terms.csv"):
        sums[record["cell"]] = sums.get(record["cell"], 0) + int(record["bytes"])
    rows = {row["cell"]: int(row["peak_bytes_model"]) for row in _records(smoke / "results.csv")}
    assert sums == rows


def test_report_and_tables_are_there(smoke):
    assert "holds" in (smoke / "tables" / "claims.md").read_text(encoding="utf-8")
    for name in ("inventory", "shareable", "variants"):
        assert (smoke / "tables" / f"{name}.md").is_file(), name
    assert (smoke / "report.html").is_file()


@pytest.mark.parametrize("preset, cell", [
    ("default", "attention/prealloc-mm/L52-T52-H600/b64/train/float64/"),
    ("default", "attention/clones/L50-T50-H1000-N4/b64/train/float32/"),
    ("thread", "attention/sdpa-batched/L50-T52-H600/b64/inference/float32/"),
    ("decoder", "attention/autograd/L50-T50-H500-N2/b64/train/float32/")])
def test_presets_have_a_plan(preset, cell):
    done = _run(f"--preset={preset}", "--list")
    assert done.returncode == 0, done.stderr
    assert cell in done.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
