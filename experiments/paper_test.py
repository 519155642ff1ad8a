"""//experiments:paper without measuring: what it refuses, and what it leaves alone."""

import json
import pathlib
import subprocess
import sys

import pytest

_PAPER = pathlib.Path(__file__).parent / "paper"


def _run(*flags):
    return subprocess.run([_PAPER, *flags], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("flags, words", [
    (["--preset=slow"], "invalid choice: 'slow'"),
    (["--only=crossover,crosover"], "no experiment is named 'crosover'; there are crossover, "),
    (["--from=results/reference", "--only=copies"], "--from draws all"),
    (["--form=results/reference"], "unrecognized arguments: --form"),
])
def test_a_bad_flag_is_one_sentence(flags, words):
    done = _run(*flags)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]


def test_a_directory_without_runs_is_said(tmp_path):
    done = _run(f"--from={tmp_path}", f"--out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert "has no experiment's run" in done.stderr


def test_a_finished_experiment_is_not_run_again(tmp_path):
    run = tmp_path / "copies" / "run.json"
    run.parent.mkdir()
    run.write_text(json.dumps({"finished_utc": "2026-01-01T00:00:00Z"}), encoding="utf-8")
    done = _run("--only=copies", f"--out={tmp_path}")
    assert "copies: finished before" in done.stdout
    assert done.returncode == 2  # The directory holds no rows to draw,
    assert "paper: " in done.stderr  # which it says.


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
