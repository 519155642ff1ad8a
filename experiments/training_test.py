"""Runs //experiments:training from end to end on a network of few steps."""

import csv
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest

_TRAINING = pathlib.Path(__file__).parent / "training"
_DOCS = pathlib.Path(__file__).parent.parent / "docs" / "training.md"
_TINY = ("--preset=quick", "--shape=2x4x4:4x4x4", "--rank=3", "--heads=2", "--d-head=16",
         "--batch=4", "--target-len=8", "--memory-len=8", "--threads=1", "--warm-up=2",
         "--evaluation-segments=2", "--quiet")


def _run(*flags, **kwargs):
    return subprocess.run([_TRAINING, *flags], capture_output=True, text=True, check=False, **kwargs)


def _records(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("training") / "run"
    done = _run(*_TINY, "--steps=5", "--evaluate-every=2", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    return out


def test_every_network_has_every_step(tiny):
    networks = [row["network"] for row in _records(tiny / "networks.csv")]
    assert networks == ["dense", "naive", "sequential", "fused", "fused-off1", "fused-off2",
                        "fused-off3"]
    steps = _records(tiny / "steps.csv")
    for network in networks:
        mine = [row for row in steps if row["network"] == network]
        assert [row["step"] for row in mine] == list("12345")
        assert [row["step"] for row in mine if row["held_out_loss_nats"]] == list("245")
        assert float(mine[-1]["loss_nats"]) < float(mine[0]["loss_nats"])


def test_variants_of_cores_begin_alike(tiny):
    first = {row["network"]: row for row in _records(tiny / "steps.csv") if row["step"] == "1"}
    fused = float(first["fused"]["loss_nats"])
    for network in ("naive", "sequential"):
        assert float(first[network]["loss_nats"]) == pytest.approx(fused, rel=1e-6)
    assert float(first["fused-off1"]["loss_nats"]) != fused


def test_parameters_and_bytes(tiny):
    rows = {row["network"]: row for row in _records(tiny / "networks.csv")}
    # Two layers of 32 x 64 twice; cores 2*4*3 + 3*4*4*3 + 3*4*4, as many for the transpose.
    assert int(rows["dense"]["feed_forward_parameters"]) == 2 * 2 * 32 * 64
    assert int(rows["fused"]["feed_forward_parameters"]) == 2 * 2 * (24 + 144 + 48)
    peak = {name: int(row["step_peak_bytes"]) for name, row in rows.items()}
    assert peak["fused-off1"] == peak["fused"] < peak["dense"]
    assert peak["fused"] <= peak["sequential"]
    # Parameters, gradients and Adam's two moments of all of them.
    assert peak["fused"] > 4 * 4 * int(rows["fused"]["parameters"])


def test_it_is_drawn_and_documented(tiny):
    assert (tiny / "report.html").is_file()
    assert (tiny / "plots" / "training-loss.svg").is_file()
    page = _DOCS.read_text(encoding="utf-8")
    for name in ("networks.csv", "steps.csv", "text.csv"):
        for column in _records(tiny / name)[0]:
            assert f"`{column}`" in page, column


@pytest.mark.parametrize("flags, sentence", [
    (("--preset=fast",), "no preset is named 'fast'"),
    (("--steps=none",), "--steps"),
    (("--stepps=3",), "--stepps"),
    (("--variant=fusd",), "fused"),
    (("--variant=naive,dense",), "--reference"),
    (("--shape=2x4:4",), "modes"),
    (("--warm-up=100", "--steps=5"), "--warm-up"),
    (("--evaluation-segments=1000000",), "--evaluation-segments"),
    (("--cutoffs=99999",), "cutoff"),
    (("--out=",), "--out")])
def test_bad_flags_are_one_sentence(flags, sentence, tmp_path):
    done = _run(f"--out={tmp_path / 'run'}", *flags)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_directory_with_a_run_is_left_alone(tiny):
    before = (tiny / "steps.csv").read_bytes()
    done = _run(*_TINY, "--steps=3", f"--out={tiny}")
    assert done.returncode == 2
    assert "already holds a run" in done.stderr
    assert (tiny / "steps.csv").read_bytes() == before


def test_a_kill_loses_no_finished_row(tmp_path):
    out = tmp_path / "run"
    with subprocess.Popen([_TRAINING, *_TINY, "--steps=100000", f"--out={out}"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (out / "steps.csv").is_file() or len(_records(out / "steps.csv")) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert output.splitlines()[-1] == str(out)  # Drawn all the same.
    assert all(row["step_s"] for row in _records(out / "steps.csv"))


def test_a_full_disk_is_said_and_rows_are_whole(tmp_path):
    out = tmp_path / "run"
    done = _run(*_TINY, "--steps=1000", f"--out={out}", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (20000, 20000)))
    assert done.returncode == 4, done.stderr
    assert "steps.csv" in done.stderr
    text = (out / "steps.csv").read_text(encoding="utf-8")
    assert text.endswith("\n") and len(text.splitlines()) > 50


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
