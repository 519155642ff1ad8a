"""Runs //experiments:copies from end to end on small layers."""

import csv
import pathlib
import subprocess
import sys

import pytest

_COPIES = pathlib.Path(__file__).parent / "copies"


def _run(*flags):
    return subprocess.run([_COPIES, "--experiment=copies", "--program=copies", *flags],
                          capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("copies") / "run"
    done = _run("--preset=quick", "--d=4", "--rank=3", "--batch=5", "--threads=2", f"--out={out}",
                "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    return out


def _records(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_copy_is_the_models(small):
    cells = _records(small / "cells.csv")
    assert {cell["status"] for cell in cells} == {"ok"}
    assert len({cell["variant"] for cell in cells}) == 13
    for cell in cells:
        assert cell["copied_bytes"] == cell["copied_bytes_model"], cell["cell"]
        assert cell["copies"] == cell["copies_model"], cell["cell"]


def test_copies_add_up_to_their_cells(small):
    sums = {}
    for line in _records(small / "copies.csv"):
        column = "scratch_bytes" if line["what"] == "scratch" else "copied_bytes"
        sums[line["cell"], column] = sums.get((line["cell"], column), 0) + int(line["bytes"])
    for cell in _records(small / "cells.csv"):
        for column in ("scratch_bytes", "copied_bytes"):
            assert sums.get((cell["cell"], column), 0) == int(cell[column]), cell["cell"]


# d = 4, r = 3, B = 5, float32: x, and both running tensors of r B d^3.
def test_einsum_copies_what_the_arithmetic_says(small):
    lines = [line for line in _records(small / "copies.csv")
             if line["variant"] == "einsum" and line["phase"] == "inference"]
    bytes_of = {}
    for line in lines:
        bytes_of[line["kind"]] = bytes_of.get(line["kind"], 0) + int(line["bytes"])
        assert line["operators"] == "einsum > reshape > clone > copy_"
    assert bytes_of == {"x": 4 * 5 * 64, "intermediate": 4 * 2 * 3 * 5 * 64}


def test_report_and_tables_are_there(small):
    assert "C10" in (small / "report.html").read_text(encoding="utf-8")
    for name in ("remedies", "scratch", "operators-4x4x4-4x4x4-r3-b5"):
        assert (small / "tables" / f"{name}.md").is_file(), name


@pytest.mark.parametrize("preset", ("default", "quick"))
def test_presets_have_a_plan(preset):
    done = _run(f"--preset={preset}", "--list")
    assert done.returncode == 0, done.stderr
    assert "linear/sequential-bmm/16x16x16:16x16x16/r8/" in done.stdout
    assert "linear/fused/8x8x8x8:8x8x8x8/r8/" in done.stdout


@pytest.mark.parametrize("flag, words", [
    ("--repetitions=3", "--repetitions: copies takes no such flag"),
    ("--preset=none", "no preset is named 'none'"),
    ("--variant=sequental", "matches nothing"),
    ("--rank=0", "--rank: '0' is too small")])
def test_bad_flags_are_one_sentence(flag, words):
    done = _run(flag, "--list")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
