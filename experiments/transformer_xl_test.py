"""Runs //experiments:transformer_xl from end to end on its smallest sizes.

Memory alone: the time of a cell with two threads depends on what else the machine does.
"""

import csv
import pathlib
import subprocess
import sys

import pytest

_PROGRAM = pathlib.Path(__file__).parent / "transformer_xl"


def _run(*flags):
    return subprocess.run([_PROGRAM, "--experiment=transformer_xl", *flags],
                          capture_output=True, text=True, check=False)


def _records(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("transformer_xl") / "run"
    done = _run("--preset=smoke", "--measure=memory", "--threads=2", f"--out={out}", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    return out


def test_every_byte_is_the_models(smoke):
    rows = _records(smoke / "results.csv")
    good = [row for row in rows if row["status"] == "ok"]
    assert len({row["variant"] for row in good}) == 13
    for row in good:
        for column in ("weight_bytes", "held_bytes", "forward_peak_bytes", "backward_peak_bytes",
                       "peak_bytes"):
            assert row[column] == row[column + "_model"], (row["cell"], column)


def test_the_budget_refuses_what_it_must(smoke):
    lost = [row for row in _records(smoke / "results.csv") if row["status"] != "ok"]
    assert [(row["variant"], row["batch"], row["status"]) for row in lost] == [
        ("sequential", "32", "oom")]
    assert "budget" in lost[0]["repro"]


def test_terms_add_up_to_the_peaks(smoke):
    sums = {}
    for record in _records(smoke / "terms.csv"):
        sums[record["cell"]] = sums.get(record["cell"], 0) + int(record["bytes"])
    for row in _records(smoke / "results.csv"):
        if row["peak_bytes_model"]:
            assert sums[row["cell"]] == int(row["peak_bytes_model"])


def test_report_and_tables_are_there(smoke):
    for name in ("claims", "networks"):
        assert (smoke / "tables" / f"{name}.md").is_file(), name
    for name in ("batch", "bytes", "forms", "order"):
        assert (smoke / "plots" / f"transformer-xl-{name}.svg").is_file(), name
    assert (smoke / "report.html").is_file()


@pytest.mark.parametrize("preset, cell", [
    ("quick", "transformer-xl/dense/L16-D410-I2100-T150-M150/b20/inference/float32/"),
    ("default", "transformer-xl/fused/L16-D410-I2100-T150-M150/2x5x41:10x14x15/r8/b64/train/"),
    ("default", "/41x5x2:10x14x15+15x14x10:2x5x41/r8/b4/train/")])
def test_presets_have_a_plan(preset, cell):
    done = _run(f"--preset={preset}", "--list")
    assert done.returncode == 0, done.stderr
    assert cell in done.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
