"""//benchmarks:regress from end to end: on made-up runs, with a made-up sweep program for times,
and with the real one on its smallest layers.
"""

import csv
import dataclasses
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

from benchmarks import regress
from plotting import results as results_lib
from plotting import synthetic

SWEEP = pathlib.Path("benchmarks/sweep").absolute()
CUBE = [8, 8, 8]
RANKS = [1, 4, 4, 1]

# A sweep program: each grid of its preset names a cell of the rows beside it. Times and time ratios
# get a disturbance of up to 0.5% and the factor that `slow` holds for the variant; ratios also that
# of "the ratio of", for a dense layer that varies.
FAKE_SWEEP = """#!{python}
import csv, hashlib, json, pathlib, shutil, sys
here = pathlib.Path(__file__).parent
flags = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
out = pathlib.Path(flags["--out"])
common, *grids = pathlib.Path(flags["--preset"]).read_text().split("[")
grids = [common + grid.partition("]")[2] for grid in grids] or [common]
wanted = [[w for w in grid.split() if w.startswith("--only=")][0][7:] for grid in grids]
assert all(grid.count("--only=") == 1 for grid in grids)
slow = json.loads((here / "slow.json").read_text())
with open(here / "results.csv", newline="") as file:
    header, *rows = csv.reader(file)
with open(out / "results.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(header)
    for row in rows:
        fields = dict(zip(header, row))
        if fields["cell"] not in wanted:
            continue
        digest = hashlib.sha256("/".join([*out.parts[-2:], fields["cell"]]).encode()).digest()[0]
        factor = slow.get(fields["variant"], 1) * (1 + (digest / 255 - 0.5) / 100)
        if fields["time_ns"]:
            fields["time_ns"] = float(fields["time_ns"]) * factor
        if fields["time_ratio_to_dense"] and fields["baseline"] == "0":
            fields["time_ratio_to_dense"] = (float(fields["time_ratio_to_dense"]) * factor
                                             * slow.get("the ratio of " + fields["variant"], 1))
        if "time" not in flags["--measure"]:
            for name in ("time_ns", "time_ratio_to_dense"):
                fields[name] = ""
        if "memory" not in flags["--measure"]:
            for name in header:
                if "bytes" in name:
                    fields[name] = ""
        writer.writerow(fields.values())
shutil.copy(here / "run.json", out)
with open(here / "calls", "a") as file:
    print(out.name, len(wanted), flags["--measure"], file=file)
"""


def _rows(batches=(64, 512), variants=("dense", "sequential", "naive", "einsum", "fused",
                                       "recompute", "sequential-bmm")):
    rows = []
    for batch in batches:
        for variant in variants:
            row = synthetic.row(variant, CUBE, CUBE, RANKS, batch, "train")
            rows.append(dataclasses.replace(
                row, repro=f"bazel run //benchmarks:sweep -- --only={row.cell} "
                           "--measure=memory,time --min-time=8000000ns"))
    return rows


def _write(directory, rows, **run):
    flags = [f"--only={row.cell} --crossovers=train --min-time=8ms" for row in rows]
    synthetic.write(directory, rows, None, {**synthetic.RUN, "flags": flags, **run})
    return directory


@pytest.fixture(name="here")
def _here(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    return tmp_path


def _fake_sweep(directory, rows, slow=None, **run):
    _write(directory, rows, **run)
    (directory / "slow.json").write_text(json.dumps(slow or {}))
    program = directory / "sweep"
    program.write_text(FAKE_SWEEP.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"--sweep={program}"


def _regress(*arguments):
    return regress.main(list(arguments))


def _findings(out):
    read = json.loads((out / "regress.json").read_text())
    return {(f["cell"].split("/")[1], f["kind"]): f["verdict"] for f in read["findings"]
            if f["verdict"] != "same"}


# ---- Two runs on disk


def test_a_run_is_no_regression_of_itself(here, capsys):
    _write(here / "a", _rows())
    assert _regress("--baseline=a", "--candidate=a", "--out=out") == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["No regression.", str(here / "out")]
    assert sorted(path.name for path in (here / "out").iterdir()) == [
        "regress.json", "regress.md", "regress.xml"]


def test_more_memory_is_a_regression_and_less_is_not(here, capsys):
    rows = _rows()
    _write(here / "a", rows)
    _write(here / "b", [dataclasses.replace(row, peak_bytes=row.peak_bytes + 8,
                                            peak_bytes_model=row.peak_bytes_model + 8)
                        if row.variant == "naive" else row for row in rows])
    assert _regress("--baseline=a", "--candidate=b", "--out=ab") == 1
    assert "Regression in 2 cells." in capsys.readouterr().out
    assert _findings(here / "ab") == {("naive", "memory"): "more memory"}
    assert _regress("--baseline=b", "--candidate=a", "--out=ba") == 0
    assert _findings(here / "ba") == {("naive", "memory"): "less memory"}


def test_a_candidate_may_be_a_part_of_the_baseline(here):
    rows = _rows()
    _write(here / "a", rows)
    _write(here / "b", rows[:-1])
    assert _regress("--baseline=a", "--candidate=b", "--out=out") == 0
    assert _findings(here / "out") == {("sequential-bmm", "status"): "gone"}


def test_filter_is_a_glob_of_the_sweeps_kind(here):
    rows = _rows()
    _write(here / "a", rows)
    _write(here / "b", [dataclasses.replace(row, status="crashed") for row in rows])
    assert _regress("--baseline=a", "--candidate=b", "--filter=*/naive/*/b64/*", "--out=out") == 1
    assert _findings(here / "out") == {("naive", "status"): "now fails"}


def test_passes_on_both_sides_are_judged_without_running_anything(here):
    rows = _rows()
    for i in range(12):
        for side, factor in (("a", 1.0), ("b", 1.2)):
            changed = [dataclasses.replace(
                row, time_ratio_to_dense=row.time_ratio_to_dense * (1 + i * 1e-4)
                * (factor if row.variant == "naive" else 1)) for row in rows]
            _write(here / side / f"pass-{i + 1}", changed)
    assert _regress("--baseline=a", "--candidate=b", "--out=out") == 1
    assert _findings(here / "out") == {("naive", "time"): "slower"}
    assert _regress("--baseline=b", "--candidate=a", "--out=back") == 0
    assert _findings(here / "back") == {("naive", "time"): "faster"}


def test_a_crash_in_one_pass_of_many_is_a_regression(here):
    rows = _rows()
    for i in range(1, 4):
        _write(here / "a" / f"pass-{i}", rows)
        _write(here / "b" / f"pass-{i}", [
            dataclasses.replace(row, status="crashed", reason="ended by SIGSEGV")
            if i == 3 and row.variant == "naive" else row for row in rows])
    assert _regress("--baseline=a", "--candidate=b", "--out=out") == 1
    assert _findings(here / "out") == {("naive", "status"): "now fails"}


MACHINE = {**synthetic.RUN["machine"], "cpu_model": "Another CPU"}


@pytest.mark.parametrize("change, arguments, code, words", [
    ({"machine": MACHINE}, (), 3, "another machine: cpu_model was Made-up CPU 9000"),
    ({"libtorch": "3.0"}, (), 3, "libtorch was 2.11.0, is 3.0"),
    ({}, ("--filter=nothing",), 3, "No cell of the baseline matches"),
    ({}, ("--baseline=nowhere",), 2, "There is no directory"),
])
def test_what_cannot_be_compared_is_said(here, capsys, change, arguments, code, words):
    _write(here / "a", _rows())
    _write(here / "b", _rows(), **change)
    assert _regress("--baseline=a", "--candidate=b", "--out=out", *arguments) == code
    assert words in capsys.readouterr().err
    assert not (here / "out").exists()


def test_no_common_cell_and_another_schema_are_nothing_comparable(here, capsys):
    _write(here / "a", _rows(batches=(1,)))
    _write(here / "b", _rows(batches=(2,)))
    assert _regress("--baseline=a", "--candidate=b", "--out=out") == 3
    assert "no cell in common" in capsys.readouterr().err
    path = here / "b" / "results.csv"
    path.write_text(path.read_text().replace("\n1,", "\n7,"))
    assert _regress("--baseline=a", "--candidate=b", "--out=out") == 3
    assert "schema 7" in capsys.readouterr().err


def test_another_machine_leaves_the_modelled_figures(here):
    rows = _rows()
    _write(here / "a", rows)
    changed = [dataclasses.replace(row, time_ratio_to_dense=9.0,
                                   flops_model=row.flops_model + (row.variant == "fused"))
               for row in rows]
    _write(here / "b", changed, machine=MACHINE)
    assert _regress("--baseline=a", "--candidate=b", "--out=out", "--allow-other-machine") == 1
    assert _findings(here / "out") == {("fused", "flops"): "more FLOPs"}


@pytest.mark.parametrize("arguments, words", [
    ([], "--baseline"),
    (["--baseline=a", "--measure=speed"], "memory, time"),
    (["--baseline=a", "--passes=0"], "1 to 1000"),
    (["--baseline=a", "--candidate=a", "--sweep=x"], "leave out"),
    (["--baseline=a", "--base=b"], "unrecognized"),
])
def test_bad_flags_are_refused(here, capsys, arguments, words):
    _write(here / "a", _rows())
    with pytest.raises(SystemExit) as stopped:
        _regress(*arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


# ---- Running the baseline's cells


def test_a_planted_slow_down_is_called_against_a_recorded_baseline(here):
    rows = _rows()
    sweep = _fake_sweep(here / "old", rows)
    # Against itself: what it leaves is a baseline of ten passes.
    assert _regress("--baseline=old", sweep, "--passes=10", "--out=base") == 0
    sweep = _fake_sweep(here / "new", rows, slow={"einsum": 1.10})
    assert _regress("--baseline=base", sweep, "--out=out") == 1
    assert _findings(here / "out") == {("einsum", "time"): "slower"}
    calls = [line.split() for line in (here / "new" / "calls").read_text().splitlines()]
    assert calls[:2] == [["run", "1", "memory"], ["pass-1", "14", "memory,time"]]
    assert calls[2:6] == [[f"pass-{i}", "14", "time"] for i in range(2, 6)]
    # The two suspicious cells, with the ten others that have a ratio as controls.
    assert calls[6:] == [[f"confirm-{i}", "12", "time"] for i in range(1, 21)]


def test_a_single_run_with_its_sweep_program_is_enough(here):
    rows = _rows()
    old = _fake_sweep(here / "old", rows).replace("--sweep", "--baseline-sweep")
    new = _fake_sweep(here / "new", rows, slow={"fused": 0.8})
    assert _regress("--baseline=old", old, new, "--out=out") == 0
    assert _findings(here / "out") == {("fused", "time"): "faster"}
    assert (here / "out" / "baseline" / "confirm-20" / "results.csv").is_file()


def test_programs_run_in_turns_are_compared_by_times_and_not_by_ratios(here):
    rows = _rows()
    old = _fake_sweep(here / "old", rows).replace("--sweep", "--baseline-sweep")
    new = _fake_sweep(here / "new", rows, slow={"einsum": 1.1, "the ratio of naive": 1.3})
    assert _regress("--baseline=old", old, new, "--out=out") == 1
    assert _findings(here / "out") == {("einsum", "time"): "slower"}
    report = (here / "out" / "regress.md").read_text(encoding="utf-8")
    assert "| time |" in report and " µs |" in report
    # The dense layer's own times count.
    new = _fake_sweep(here / "newer", rows, slow={"dense": 1.1})
    assert _regress("--baseline=old", old, new, "--out=out-2") == 1
    assert _findings(here / "out-2") == {("dense", "time"): "slower"}


def test_a_kill_is_heeded_even_if_the_sweep_ends_as_it_comes():
    program = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.5)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(0.5)
"""
    sweeps = regress.Sweeps(sys.executable, None, "", True)
    assert sweeps._call([sys.executable, "-c", program]) == 128 + signal.SIGTERM


def test_a_single_run_alone_can_only_suspect(here, capsys):
    rows = _rows()
    _write(here / "old", rows)
    new = _fake_sweep(here / "new", rows, slow={"fused": 1.5})
    assert _regress("--baseline=old", new, "--out=out") == 0
    assert _findings(here / "out") == {("fused", "time"): "ambiguous"}
    assert "single run" in capsys.readouterr().out


def test_memory_alone_takes_one_pass_and_a_lost_cell_is_a_regression(here, capsys):
    rows = _rows()
    _write(here / "old", rows)
    new = _fake_sweep(here / "new", rows[:-1])
    assert _regress("--baseline=old", new, "--measure=memory", "--out=out") == 1
    assert _findings(here / "out") == {("sequential-bmm", "status"): "gone"}
    assert not (here / "out" / "pass-2").exists()
    assert "Regression in 1 cell." in capsys.readouterr().out


def test_the_parts_of_a_merged_baseline_run_one_by_one(here):
    rows = _rows()
    half = len(rows) // 2
    _write(here / "a", rows[:half])
    _write(here / "b", rows[half:])
    assert regress.merge.main(["a", "b", "--out=old"]) == 0
    new = _fake_sweep(here / "new", rows)
    assert _regress("--baseline=old", new, "--measure=memory", "--out=out") == 0
    calls = (here / "new" / "calls").read_text().split()
    assert calls.count("part-1") == calls.count("part-2") == 1


def test_the_baselines_calibration_goes_before_each_run(here):
    rows = _rows()
    _write(here / "old", rows)
    (here / "old" / "calibration.csv").write_text("rates\n")
    new = _fake_sweep(here / "new", rows)
    assert _regress("--baseline=old", new, "--measure=memory", "--out=out") == 0
    assert (here / "out" / "pass-1" / "calibration.csv").read_text() == "rates\n"


def test_an_out_that_holds_a_run_is_refused(here, capsys):
    _write(here / "old", _rows())
    new = _fake_sweep(here / "new", _rows())
    assert _regress("--baseline=old", new, "--out=old") == 2
    assert "already holds a run" in capsys.readouterr().err


# ---- The real sweep program


TINY = ("--d=2", "--rank=1,2", "--phase=train,inference", "--batch=1,4", "--threads=1",
        "--variant=dense*,naive,sequential,fused", "--measure=memory", "--quiet")


@pytest.fixture(name="tiny", scope="module")
def _tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "tiny"
    subprocess.run([SWEEP, *TINY, f"--out={directory}"], check=True, stdout=subprocess.DEVNULL)
    return directory


def test_the_sweep_measures_the_same_bytes_again(tiny, here):
    assert _regress(f"--baseline={tiny}", "--measure=memory", "--quiet", "--out=out") == 0
    read = json.loads((here / "out" / "regress.json").read_text())
    with open(tiny / "results.csv", newline="", encoding="utf-8") as file:
        cells = {row["cell"] for row in csv.DictReader(file)}
    assert {f["cell"] for f in read["findings"] if f["kind"] == "memory"} == cells
    assert read["counts"] == {"same": len(cells)}


def test_an_extra_copy_of_x_is_named(tiny, here, capsys):
    read = results_lib.load(os.fspath(tiny))
    row = next(row for row in read.rows
               if row.variant == "sequential" and row.batch == 4 and row.phase == "train")
    x_bytes = 4 * 4 * 2 ** 3
    less = dataclasses.replace(row, **{
        column: getattr(row, column) - x_bytes for column in
        ("held_bytes", "held_bytes_model", "peak_bytes", "peak_bytes_model")})
    synthetic.write(here / "old", [less if row.cell == less.cell else row for row in read.rows],
                    None, read.run)
    assert _regress("--baseline=old", "--measure=memory", "--quiet", "--out=out") == 1
    printed = capsys.readouterr().out
    assert f"held_bytes {less.held_bytes:,} → {row.held_bytes:,} (+128)" in printed
    assert "× x or y" in printed
    assert _findings(here / "out") == {("sequential", "memory"): "more memory"}


def test_a_variant_that_is_gone_is_a_usage_error(tiny, here, capsys):
    read = results_lib.load(os.fspath(tiny))
    run = {**read.run, "flags": [line.replace("naive", "nowhere") for line in read.run["flags"]]}
    synthetic.write(here / "old", read.rows, None, run)
    assert _regress("--baseline=old", "--measure=memory", "--quiet", "--out=out") == 2
    assert "variants or flags that this version lacks" in capsys.readouterr().err
