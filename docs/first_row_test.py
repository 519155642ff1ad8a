"""The commands of adding-a-variant.md give rows, with the very example of the page."""

import csv
import pathlib
import re
import shlex
import subprocess

_PAGE = pathlib.Path("docs/adding-a-variant.md").read_text(encoding="utf-8")
_SWEEP = pathlib.Path("docs/example_sweep").absolute()


def test_the_sweep_of_the_page_measures_the_example(tmp_path):
    command = re.search(r"^\./bazelw run //benchmarks:sweep -- (.*mine.*)$", _PAGE, re.MULTILINE)[1]
    flags = shlex.split(command.replace("mine", "worked-example"))
    done = subprocess.run([_SWEEP, *flags, "--measure=memory", "--threads=1", "--quiet",
                           "--out=run"], cwd=tmp_path, env={}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "run/results.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["variant"] == "worked-example"]
    assert [(row["batch"], row["phase"]) for row in rows] == [
        (str(8 ** k), phase) for k in range(5) for phase in ("inference", "train")]
    for row in rows:
        assert row["status"] == "ok" and row["peak_bytes"] == row["peak_bytes_model"]
        assert row["repro"].startswith("bazel run //docs:example_sweep -- ")


def test_an_unsupported_layer_is_skipped_with_the_reason_of_the_page(tmp_path):
    done = subprocess.run([_SWEEP, "--variant=worked-example", "--d=4", "--cores=3", "--rank=2", "--batch=1",
                           "--threads=1", "--quiet", "--out=run"], cwd=tmp_path, env={},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "run/results.csv", newline="", encoding="utf-8") as file:
        assert [(row["status"], row["reason"]) for row in csv.DictReader(file)] == [
            ("skipped", "written for two cores")] * 2


def test_the_commands_that_new_variant_prints_are_those_of_the_page():
    source = pathlib.Path("kernels/new_variant.py").read_text(encoding="utf-8")
    for target in ("//kernels/linear:variants_test --test_filter='*/", "//benchmarks:sweep -- ",
                   "//benchmarks:memory_model_test --test_filter='*/"):
        assert target in _PAGE and target in source
