"""Runs //experiments:replicas from end to end on small layers."""

import csv
import pathlib
import subprocess
import sys

import pytest

_REPLICAS = pathlib.Path(__file__).parent / "replicas"


def _run(*flags):
    return subprocess.run([_REPLICAS, "--experiment=replicas", "--program=replicas", *flags],
                          capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    out = tmp_path_factory.mktemp("replicas") / "run"
    done = _run("--preset=quick", "--d=3", "--rank=2", "--batch=6", "--repetitions=1",
                f"--out={out}", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    assert (out / "report.html").is_file() and not (out / "rendezvous").exists()
    with open(out / "replicas.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_registered_layers_pass_and_plain_ones_fail(rows):
    statuses = {keeping: {row["status"] for row in rows if row["keeping"] == keeping}
                for keeping in ("registered", "plain")}
    assert statuses == {"registered": {"ok"}, "plain": {"failed"}}
    assert len({row["variant"] for row in rows if row["keeping"] == "registered"}) == 12


# d = 3, r = 2, three cores: d²(r² + 2r) parameters, and d⁶ of the dense layer; in one direction.
def test_two_processes_exchange_the_gradients(rows):
    for row in rows:
        if row["check"] != "processes" or row["keeping"] != "registered":
            continue
        item = 8 if row["dtype"] == "float64" else 4
        parameters = 3 ** 6 if row["variant"] == "dense" else 9 * (4 + 4)
        assert int(row["gradient_bytes"]) == item * parameters
        assert row["exchanged_bytes_formula"] == row["gradient_bytes"]
        if row["exchanged_bytes"]:
            assert 0 <= int(row["exchanged_bytes"]) - item * parameters <= 2048


@pytest.mark.parametrize("preset", ("default", "quick"))
def test_presets_have_a_plan(preset):
    done = _run(f"--preset={preset}", "--list")
    assert done.returncode == 0, done.stderr
    assert "linear/fused/2x5x41:10x14x15/r8/" in done.stdout


@pytest.mark.parametrize("flag, words", [
    ("--min-time=3ms", "--min-time: replicas takes no such flag"),
    ("--preset=none", "no preset is named 'none'"),
    ("--dtype=int8", "matches nothing")])
def test_bad_flags_are_one_sentence(flag, words):
    done = _run(flag, "--list")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
