"""A sweep must survive whatever its cells, its user, its disk and its machine do to it.

Runs the sweep program with variants that go wrong (faulty_variants.cc) on tiny layers, and checks
exit code, messages and files against docs and design: statuses, exit codes, columns.
"""

import csv
import io
import json
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time

import pytest

FAULTY_SWEEP = pathlib.Path("benchmarks/testing/faulty_sweep").absolute()
SWEEP = pathlib.Path("benchmarks/sweep").absolute()

# One layer of cubic cores, three batches. Rank 1 is never clipped.
LAYER = ("--d=2", "--rank=1", "--phase=train", "--threads=1")
QUICK = (*LAYER, "--batch=1,2,4", "--min-time=1ms", "--repetitions=1")
MEMORY = (*LAYER, "--batch=1,2,4", "--measure=memory")

COLUMNS = """
schema experiment cell family variant algorithm baseline in_modes out_modes ranks cores d rank
source_len target_len hidden layers batch phase dtype device threads seed status reason parameters
weight_bytes weight_bytes_model held_bytes held_bytes_model forward_peak_bytes
forward_peak_bytes_model backward_peak_bytes backward_peak_bytes_model step_peak_bytes
step_peak_bytes_model peak_bytes peak_bytes_model rss_peak_bytes reserved_bytes flops_model time_ns
time_min_ns time_spread iterations repetitions stop_reason gflops fraction_of_peak
time_ratio_to_dense peak_ratio_to_dense max_relative_error repro
""".split()
MODELLED = [column for column in COLUMNS if column + "_model" in COLUMNS and column != "flops"]
TIMES = COLUMNS[COLUMNS.index("time_ns"):COLUMNS.index("peak_ratio_to_dense")]


def sweep(cwd, *flags, program=FAULTY_SWEEP, **kwargs):
    """Runs a sweep where nothing but what it writes is."""
    return subprocess.run([program, *flags], cwd=cwd, env={}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, **kwargs)


def rows_of(directory):
    """The rows of a run, by cell name; every line must be whole and in the columns' order."""
    with open(directory / "results.csv", newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file, strict=True)
    assert header == COLUMNS
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    by_cell = {row["cell"]: row for row in rows}
    assert len(by_cell) == len(rows), "a cell has two rows"
    return by_cell


def cell(variant, batch):
    return f"linear/{variant}/2x2x2:2x2x2/r1/b{batch}/train/float32/cpu/t1"


def statuses(rows, variant):
    """(status, reason) of batches 1, 2 and 4."""
    return [(rows[cell(variant, b)]["status"], rows[cell(variant, b)]["reason"]) for b in (1, 2, 4)]


def only_line(text):
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


# The faults of cells.


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """One sweep with a cell of each fault; `sequential` runs after all of them."""
    where = tmp_path_factory.mktemp("faults")
    variants = ("test-abort,test-crash,test-exit,test-throws,test-wrong,test-nan,"
                "test-mismodelled,test-alias,test-leak,test-gradient,test-detached,test-unmodelled,"
                "test-hungry,sequential")
    done = sweep(where, *QUICK, f"--variant={variants}", "--out=run")
    return done, rows_of(where / "run")


def test_sweep_goes_on_after_every_fault(faults):
    done, rows = faults
    assert done.returncode == 1
    assert len(rows) == 14 * 3
    assert [status for status, _ in statuses(rows, "sequential")] == ["ok"] * 3


def test_signal_is_named(faults):
    ok, second, third = statuses(faults[1], "test-crash")
    assert ok == ("ok", "")
    for status, reason in (second, third):
        assert status == "crashed"
        assert "SIGSEGV" in reason
    for status, reason in statuses(faults[1], "test-abort"):
        assert status == "crashed"
        assert "SIGABRT" in reason


@pytest.mark.parametrize("variant, why", [("test-exit", "exit code 7"),
                                          ("test-throws", "the layer gave up")])
def test_child_that_leaves_has_crashed(faults, variant, why):
    for status, reason in statuses(faults[1], variant):
        assert status == "crashed"
        assert why in reason


def test_wrong_result_has_no_time(faults):
    for batch in (1, 2, 4):
        row = faults[1][cell("test-wrong", batch)]
        assert row["status"] == "wrong"
        assert "oracle" in row["reason"]
        # y alone is off, by a thousandth of its largest element.
        assert float(row["max_relative_error"]) == pytest.approx(1e-3, rel=0.02)
        assert {row[column] for column in TIMES} == {""}


def test_nan_is_wrong_and_not_written(faults):
    for batch in (1, 2, 4):
        row = faults[1][cell("test-nan", batch)]
        assert row["status"] == "wrong"
        assert "NaN" in row["reason"]
        assert {row[column] for column in (*TIMES, "max_relative_error")} == {""}


def test_mismodelled_bytes_are_wrong_and_shown(faults):
    for batch in (1, 2, 4):
        row = faults[1][cell("test-mismodelled", batch)]
        assert row["status"] == "wrong"
        copy_bytes = batch * 2**3 * 4
        assert int(row["held_bytes"]) == int(row["held_bytes_model"]) + copy_bytes
        assert row["held_bytes"] in row["reason"] and row["held_bytes_model"] in row["reason"]
        assert {row[column] for column in TIMES} == {""}


MISTAKES = [
    ("test-alias", "y shares its memory with x", "clone() it"),
    ("test-leak", "bytes outlive the iteration, the first by clone", "has to be gone"),
    ("test-gradient", "the gradient of core 2 is wrong", "float64 oracle"),
    ("test-detached", "y has no history", "torch::autograd::Function"),
    ("test-unmodelled", "measured bytes are not the model's", "by the tape's operators"),
    ("test-wrong", "y is wrong", "float64 oracle"),
]


@pytest.mark.parametrize("variant, what, advice", MISTAKES, ids=[row[0] for row in MISTAKES])
def test_mistake_gives_a_sentence(faults, variant, what, advice):
    for batch in (1, 2, 4):
        row = faults[1][cell(variant, batch)]
        assert row["status"] == "wrong"
        assert what in row["reason"] and advice in row["reason"]
        assert len(row["reason"].splitlines()) == 1
        assert {row[column] for column in TIMES} == {""}


def test_leak_is_counted(faults):
    for batch in (1, 2, 4):
        # One copy of x, of 2x2x2.
        assert faults[1][cell("test-leak", batch)]["reason"].startswith(f"{batch * 8 * 4} bytes ")


def test_exception_says_where_to_refuse(faults):
    _, reason = statuses(faults[1], "test-throws")[0]
    assert "the layer gave up" in reason
    assert "'test-throws'" in reason and "WhyUnsupported()" in reason


def test_bytes_are_shown_beside_the_model_once_for_each_variant(faults):
    stderr = faults[0].stderr
    # test-mismodelled, test-leak and test-unmodelled.
    assert stderr.count("the model's term") == 3
    # test-mismodelled copies x, of 32 bytes, where its model has the first product, of as many. They
    # part where the model releases that.
    shown = stderr.partition("linear/test-mismodelled/")[2].partition("the model's term\n")[2]
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[:3] == ["1 +32 clone | +32 T3", "2 +32 mm | +32 T3, permuted",
                         "> 3 +32 reshape | -32 T3 <- they part here"]


def test_model_that_makes_no_program_ends_the_sweep_with_a_sentence(tmp_path):
    done = sweep(tmp_path, *MEMORY, "--variant=test-bad-model,sequential", "--out=run")
    assert done.returncode == 1
    line = only_line(done.stderr)
    assert "the cost model of 'test-bad-model' fails on 2x2x2:2x2x2" in line
    assert "correct its Trace()" in line
    assert not (tmp_path / "run").exists()


def test_row_without_a_result_has_no_figures(faults):
    row = faults[1][cell("test-crash", 2)]
    measured = [*MODELLED, "rss_peak_bytes", *TIMES, "peak_ratio_to_dense", "max_relative_error"]
    assert {row[column] for column in measured} == {""}


@pytest.mark.parametrize("fault", ["test-crash", "test-exit", "test-throws", "test-wrong",
                                   "test-mismodelled"])
def test_each_fault_alone_fails_the_sweep(tmp_path, fault):
    done = sweep(tmp_path, *MEMORY, f"--variant={fault}", "--batch=2", "--out=run")
    assert done.returncode == 1


def test_hung_cell_times_out(tmp_path):
    start = time.monotonic()
    done = sweep(tmp_path, *QUICK, "--variant=test-hang,sequential", "--cell-timeout=2s",
                 "--out=run")
    elapsed = time.monotonic() - start
    assert done.returncode == 1
    rows = rows_of(tmp_path / "run")
    first, second, third = statuses(rows, "test-hang")
    assert first[0] == "timeout" and "2 s" in first[1]
    for status, reason in (second, third):
        assert status == "skipped"
        assert "time" in reason and "batch 1" in reason
    assert [status for status, _ in statuses(rows, "sequential")] == ["ok"] * 3
    assert 2 <= elapsed < 20


# Memory.


def test_real_out_of_memory(tmp_path):
    done = sweep(tmp_path, *QUICK, "--variant=test-hungry", "--out=run")
    assert done.returncode == 1
    first, second, third = statuses(rows_of(tmp_path / "run"), "test-hungry")
    assert first == ("ok", "")
    assert second[0] == "oom" and second[1]
    assert third[0] == "skipped"
    assert "memory" in third[1] and "batch 2" in third[1]


def test_out_of_memory_skips_larger_batches_only(tmp_path):
    sweep(tmp_path, *MEMORY, "--variant=test-hungry", "--batch=4,1,2,8", "--out=run")
    rows = rows_of(tmp_path / "run")
    assert [row["status"] for row in rows.values()] == ["oom", "ok", "oom", "skipped"]


def test_memory_budget_is_exact(tmp_path):
    """The budget that a batch needs to the byte lets it run; one byte less is too little."""
    sweep(tmp_path, *MEMORY, "--variant=sequential", "--out=free")
    needed = int(rows_of(tmp_path / "free")[cell("sequential", 2)]["peak_bytes"])
    for budget, expected in ((needed, ["ok", "ok", "oom"]), (needed - 1, ["ok", "oom", "skipped"])):
        done = sweep(tmp_path, *MEMORY, "--variant=sequential", f"--memory-budget={budget}",
                     f"--out=budget{budget}")
        assert done.returncode == 0
        got = statuses(rows_of(tmp_path / f"budget{budget}"), "sequential")
        assert [status for status, _ in got] == expected
        oom_reason = got[expected.index("oom")][1]
        assert str(budget) in oom_reason


# Disks and directories.


def test_file_size_limit_keeps_whole_rows(tmp_path):
    """As on a full disk, a write is cut short in the middle of a row."""
    flags = ("--variant=sequential", *MEMORY, "--batch=1:16")
    limit = 5000
    done = sweep(tmp_path, *flags, "--quiet", "--out=run",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 4
    complaint = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert "results.csv" in only_line("\n".join(complaint))
    text = (tmp_path / "run/results.csv").read_bytes()
    assert text.endswith(b"\r\n")
    assert 1 < len(rows_of(tmp_path / "run")) < 16

    assert sweep(tmp_path, "--resume=run").returncode == 0
    assert (tmp_path / "run/results.csv").read_bytes().startswith(text)
    assert set(rows_of(tmp_path / "run")) == {cell("sequential", b) for b in range(1, 17)}


def test_full_disk_before_the_first_cell(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json.tmp").symlink_to("/dev/full")
    done = sweep(tmp_path, *MEMORY, "--variant=sequential", "--out=run")
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert "linear/sequential" not in done.stderr + done.stdout
    assert not (tmp_path / "run/results.csv").exists()


def test_full_disk_after_the_last_cell(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/crossover.csv.tmp").symlink_to("/dev/full")
    done = sweep(tmp_path, *MEMORY, "--variant=sequential", "--crossovers=train",
                 "--max-crossover-batch=4", "--out=run")
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert len(rows_of(tmp_path / "run")) == 3


def test_results_on_a_device(tmp_path):
    """/dev/full reads without end and takes no row."""
    sweep(tmp_path, *MEMORY, "--variant=sequential", "--out=run")
    (tmp_path / "run/results.csv").unlink()
    (tmp_path / "run/results.csv").symlink_to("/dev/full")
    assert sweep(tmp_path, *MEMORY, "--variant=sequential", "--out=run").returncode == 2
    done = sweep(tmp_path, "--resume=run", "--quiet")
    assert done.returncode == 4
    assert "results.csv" in done.stderr


@pytest.mark.parametrize("out", ["file/run", "/proc/run"])
def test_unwritable_directory_runs_nothing(tmp_path, out):
    (tmp_path / "file").write_text("kept")
    done = sweep(tmp_path, *MEMORY, "--variant=sequential", f"--out={out}")
    assert done.returncode == 4
    assert out in only_line(done.stderr)
    assert done.stdout == ""
    assert (tmp_path / "file").read_text() == "kept"


# Interruptions.


def processes_with(argument):
    """Ids of the live processes with this argument: a sweep and its children."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if argument.encode() in (path / "cmdline").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue  # It has ended.
    return found


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def start_sweep(cwd, *flags):
    return subprocess.Popen([FAULTY_SWEEP, *flags], cwd=cwd, env={}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished_lines(directory):
    path = directory / "results.csv"
    return path.read_bytes().count(b"\r\n") if path.exists() else 0


@pytest.mark.parametrize("stop, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                        (signal.SIGKILL, -9)])
def test_stopped_in_a_cell(tmp_path, stop, code):
    """The second cell hangs, so that the signal finds the sweep in it."""
    out = f"--out={tmp_path}/run"
    process = start_sweep(tmp_path, *QUICK, "--variant=sequential,test-hang", "--quiet", out)
    wait_until(lambda: finished_lines(tmp_path / "run") == 2 and len(processes_with(out)) == 2)
    process.send_signal(stop)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    wait_until(lambda: not processes_with(out))
    assert list(rows_of(tmp_path / "run")) == [cell("sequential", 1)]
    if code > 0:
        assert f"--resume={tmp_path}/run" in stderr.splitlines()[-1]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_resume_runs_what_is_missing(tmp_path, stop):
    process = start_sweep(tmp_path, *QUICK, "--variant=test-slow", "--batch=1:16", "--out=run")
    wait_until(lambda: finished_lines(tmp_path / "run") >= 4)
    process.send_signal(stop)
    process.communicate(timeout=20)
    assert process.returncode in (143, -9), "it was done before it was stopped"
    finished = (tmp_path / "run/results.csv").read_bytes()
    whole = finished[:finished.rindex(b"\r\n") + 2]
    assert 4 <= whole.count(b"\r\n") < 17

    assert sweep(tmp_path, "--resume=run").returncode == 0
    assert (tmp_path / "run/results.csv").read_bytes().startswith(whole)
    rows = rows_of(tmp_path / "run")
    assert list(rows) == [cell("test-slow", b) for b in range(1, 17)]
    assert {row["status"] for row in rows.values()} == {"ok"}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    where = tmp_path_factory.mktemp("finished")
    done = sweep(where, *MEMORY, "--variant=sequential", "--out=run")
    assert done.returncode == 0
    return where / "run"


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of a finished run of three cells."""
    return pathlib.Path(shutil.copytree(finished_run, tmp_path / "run"))


def test_resume_of_a_finished_run_changes_no_row(run):
    before = (run / "results.csv").read_bytes()
    done = sweep(run.parent, "--resume=run")
    assert done.returncode == 0
    assert (run / "results.csv").read_bytes() == before
    assert done.stdout.splitlines()[-1] == "run"


@pytest.mark.parametrize("torn", ['1,sweep,linear/sequential/2x', '1,sweep,"linear/seq\r\n', "1"])
def test_resume_cuts_off_a_torn_line(run, torn):
    path = run / "results.csv"
    whole = b"".join(path.read_bytes().splitlines(keepends=True)[:-1])
    path.write_bytes(whole + torn.encode())
    assert sweep(run.parent, "--resume=run").returncode == 0
    assert path.read_bytes().startswith(whole)
    assert list(rows_of(run)) == [cell("sequential", b) for b in (1, 2, 4)]


def test_resume_of_a_run_killed_before_its_first_row(run):
    (run / "results.csv").unlink()
    assert sweep(run.parent, "--resume=run").returncode == 0
    assert list(rows_of(run)) == [cell("sequential", b) for b in (1, 2, 4)]


def test_resume_remembers_what_ran_out(tmp_path):
    sweep(tmp_path, *MEMORY, "--variant=test-hungry", "--out=run")
    path = tmp_path / "run/results.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert sweep(tmp_path, "--resume=run").returncode == 1
    assert path.read_bytes().splitlines(keepends=True) == lines


def test_resume_keeps_filter_shard_and_budget(tmp_path):
    flags = ("--variant=sequential,naive", *MEMORY, "--batch=1:8", "--filter=*/sequential/*",
             "--shard=2/2", "--memory-budget=1KiB", "--seed=5")
    sweep(tmp_path, *flags, "--out=run")
    path = tmp_path / "run/results.csv"
    whole = rows_of(tmp_path / "run")
    assert list(whole) == [cell("sequential", b) for b in (2, 4, 6, 8)]
    assert "oom" in {row["status"] for row in whole.values()}
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert sweep(tmp_path, "--resume=run").returncode == 0
    again = rows_of(tmp_path / "run")
    for row in [*whole.values(), *again.values()]:
        del row["rss_peak_bytes"]
    assert again == whole


# Refusals.


def refused(done, *words):
    assert done.returncode == 2
    assert done.stdout == ""
    line = only_line(done.stderr)
    for word in words:
        assert word in line


@pytest.mark.parametrize("flag", ["--batch=8", "--variant=naive", "--min-time=1s", "--shard=1/2",
                                  "--filter=*", "--memory-budget=1GiB", "--out=other",
                                  "--preset=some"])
def test_resume_takes_no_other_flags(run, flag):
    before = (run / "results.csv").read_bytes()
    refused(sweep(run.parent, "--resume=run", flag), "--resume", flag.partition("=")[0])
    assert (run / "results.csv").read_bytes() == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_resume_needs_a_run(tmp_path):
    refused(sweep(tmp_path, "--resume=none"), "--resume", "none")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").mkdir()
    refused(sweep(tmp_path, "--resume=empty"), "--resume", "empty")
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("key, value", [("cpu_model", "Zilog Z80"), ("vector_extensions", "none"),
                                        ("cores", 3000)])
def test_resume_on_another_machine(run, key, value):
    before = (run / "results.csv").read_bytes()
    info = json.loads((run / "run.json").read_text())
    info["machine"][key] = value
    (run / "run.json").write_text(json.dumps(info))
    refused(sweep(run.parent, "--resume=run"), "--resume", key, str(value))
    assert (run / "results.csv").read_bytes() == before


def test_resume_with_another_libtorch(run):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "libtorch": "0.4.1"}))
    refused(sweep(run.parent, "--resume=run"), "--resume", "libtorch", "0.4.1")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"machine": 3}'])
def test_resume_with_a_broken_run_json(run, text):
    (run / "run.json").write_text(text)
    refused(sweep(run.parent, "--resume=run"), "--resume", "run.json")


@pytest.mark.parametrize("text", ["cell,status\r\na,ok\r\n", "a,b\r\n1\r\n"])
def test_resume_with_other_columns(run, text):
    (run / "results.csv").write_bytes(text.encode())
    refused(sweep(run.parent, "--resume=run"), "--resume", "results.csv")
    assert (run / "results.csv").read_bytes() == text.encode()


def test_out_of_an_existing_run(run):
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    refused(sweep(run.parent, *MEMORY, "--variant=sequential", "--out=run"), "--out", "--resume")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


BAD_FLAGS = [
    ("--variant", "--variant=sequentiall"),
    ("--variant", "--variant=sequential,"),
    ("--variant", "--variant="),
    ("--shape", "--shape=2x3"),
    ("--shape", "--shape=2x3:4:5"),
    ("--shape", "--shape=2xa:3x4"),
    ("--shape", "--shape=2x3:4"),
    ("--shape", "--shape=2x0:2x2"),
    ("--shape", "--shape=2x-3:2x2"),
    ("--shape", "--shape=3037000500x3037000500:2x2"),
    ("--d", "--d=0"),
    ("--d", "--d=4000000"),
    ("--d", "--d=1.5"),
    ("--cores", "--cores=1"),
    ("--factor-order", "--factor-order=random"),
    ("--rank", "--rank=-1"),
    ("--rank", "--rank=0"),
    ("--rank", "--rank=two"),
    ("--rank", "--rank=99999999999999999999"),
    ("--batch", "--batch="),
    ("--batch", "--batch=0"),
    ("--batch", "--batch=1,,4"),
    ("--batch", "--batch=8:2"),
    ("--batch", "--batch=2:32:x1"),
    ("--batch", "--batch=1:9:+0"),
    ("--batch", "--batch=1:1000000"),
    ("--batch", "--batch=9000000000000000000"),
    ("--phase", "--phase=fly"),
    ("--dtype", "--dtype=float16"),
    ("--device", "--device=tpu"),
    ("--threads", "--threads=0"),
    ("--seed", "--seed=-1"),
    ("--repetitions", "--repetitions=0"),
    ("--repetitions", "--repetitions=1,2"),
    ("--min-time", "--min-time=fast"),
    ("--min-time", "--min-time=0"),
    ("--cell-timeout", "--cell-timeout=-3s"),
    ("--measure", "--measure=weight"),
    ("--memory-budget", "--memory-budget=12XiB"),
    ("--memory-budget", "--memory-budget=0"),
    ("--memory-limit", "--memory-limit=much"),
    ("--shard", "--shard=2"),
    ("--shard", "--shard=0/2"),
    ("--shard", "--shard=3/2"),
    ("--shard", "--shard=1/"),
    ("--preset", "--preset=missing.flags"),
    ("--preset", "--preset=."),
    ("--experiment", "--experiment=my run"),
    ("--max-crossover-batch", "--max-crossover-batch=0"),
    ("--no-such-flag", "--no-such-flag=1"),
    ("--out", "--out="),
    ("stray", "stray"),
]


@pytest.mark.parametrize("name, flag", BAD_FLAGS, ids=[flag for _, flag in BAD_FLAGS])
def test_bad_flag_starts_no_run(tmp_path, name, flag):
    refused(sweep(tmp_path, *QUICK, "--variant=sequential", flag, "--quiet"), name)
    assert list(tmp_path.iterdir()) == []


def test_no_layer_at_all(tmp_path):
    refused(sweep(tmp_path), "--d", "--shape", "--preset")
    assert list(tmp_path.iterdir()) == []


def test_preset_with_an_unknown_flag(tmp_path):
    (tmp_path / "my.flags").write_text("--d=2\n[grid]\n--rang=3\n")
    refused(sweep(tmp_path, "--preset=my.flags", "--out=run"), "my.flags", "--rang", "--rank")
    assert not (tmp_path / "run").exists()


# Plans.


def listed(done):
    """The cells that --list prints."""
    assert done.returncode == 0
    return [word for line in done.stdout.splitlines() for word in line.split()
            if word.startswith("linear/")]


def test_filter_that_matches_nothing(tmp_path):
    done = sweep(tmp_path, *QUICK, "--variant=sequential,naive", "--filter=*/sequentiall/*/b2/*")
    assert done.returncode == 3
    assert "--filter" in done.stderr
    assert cell("sequential", 2) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_filter_selects_cells(tmp_path):
    done = sweep(tmp_path, *QUICK, "--variant=sequential,naive", "--filter=*/naive/*/b[24]/*")
    assert done.returncode == 3, "brackets are no glob"
    done = sweep(tmp_path, *QUICK, "--variant=sequential,naive", "--filter=*/naive/*/b?/*", "--list")
    assert listed(done) == [cell("naive", b) for b in (1, 2, 4)]


def test_shards_are_the_plan(tmp_path):
    flags = (*LAYER, "--batch=1:7", "--variant=sequential,naive")
    whole = listed(sweep(tmp_path, *flags, "--list"))
    assert len(whole) == len(set(whole)) == 14
    parts = [listed(sweep(tmp_path, *flags, f"--shard={i}/3", "--list")) for i in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(whole)
    assert [len(part) for part in parts] == [5, 5, 4]
    sweep(tmp_path, *flags, "--measure=memory", "--shard=2/3", "--out=run")
    assert list(rows_of(tmp_path / "run")) == parts[1]


def test_shard_without_a_cell(tmp_path):
    done = sweep(tmp_path, *QUICK, "--variant=sequential", "--shard=4/4")
    assert done.returncode == 3
    assert "4 of 4" in only_line(done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_list_runs_and_makes_nothing(tmp_path):
    done = sweep(tmp_path, *QUICK, "--variant=test-hang", "--list", "--out=run")
    assert listed(done) == [cell("test-hang", b) for b in (1, 2, 4)]
    assert "3 cells, 3 to run" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


# The results file.


@pytest.fixture(scope="module")
def all_variants(tmp_path_factory):
    """Every variant of the repository, timed too, in phases that differ in what they measure."""
    where = tmp_path_factory.mktemp("all")
    done = sweep(where, "--d=4", "--rank=2", "--batch=3", "--phase=inference,train,step-adam",
                 "--dtype=float32,bfloat16", "--threads=1", "--min-time=1ms", "--repetitions=2",
                 "--out=run", program=SWEEP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run"
    return where / "run"


def test_file_is_rfc_4180(all_variants):
    text = (all_variants / "results.csv").read_bytes().decode()
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n", quoting=csv.QUOTE_MINIMAL, strict=True)
    writer.writerows(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert written.getvalue() == text


def test_no_field_is_not_a_number(all_variants):
    text = (all_variants / "results.csv").read_text()
    assert not re.search(r"\b(nan|inf|infinity)\b", text, re.IGNORECASE)


def ran(directory):
    """The rows but those of variants that do not support the cell and say so."""
    rows = rows_of(directory)
    for name, row in list(rows.items()):
        if row["status"] == "skipped":
            assert row["reason"], name
            del rows[name]
    return rows


def test_measured_bytes_are_the_models(all_variants):
    for name, row in ran(all_variants).items():
        assert row["status"] == "ok", name
        absent = {"inference": {"held_bytes", "backward_peak_bytes", "step_peak_bytes"},
                  "train": {"step_peak_bytes"}, "step-adam": set()}[row["phase"]]
        for column in MODELLED:
            assert (row[column] == "") == (column in absent), (name, column)
            exact = column in ("weight_bytes", "held_bytes")
            if exact or "not modelled" not in row["reason"]:
                assert row[column] == row[column + "_model"], (name, column)
            else:
                assert row[column + "_model"] == "", (name, column)


def test_rows_say_what_ran(all_variants):
    for name, row in ran(all_variants).items():
        assert (row["schema"], row["experiment"], row["family"]) == ("1", "sweep", "linear")
        assert (row["in_modes"], row["out_modes"], row["cores"], row["d"]) == (
            "4x4x4", "4x4x4", "3", "4")
        dense = row["ranks"] == ""
        assert (row["ranks"], row["rank"]) == (("", "") if dense else ("1x2x2x1", "2"))
        assert int(row["parameters"]) == (4**6 if dense else 4**2 * (2**2 + 2 * 2))
        element_bytes = {"float32": 4, "bfloat16": 2}[row["dtype"]]
        assert int(row["weight_bytes"]) == int(row["parameters"]) * element_bytes
        assert (row["batch"], row["device"], row["threads"], row["seed"]) == ("3", "cpu", "1", "1")
        assert row["baseline"] == str(int(row["variant"] == "dense"))
        assert row["algorithm"]
        assert float(row["time_min_ns"]) <= float(row["time_ns"])
        assert int(row["repetitions"]) >= 1 and int(row["iterations"]) >= 1
        assert (row["fraction_of_peak"] == "") == (row["dtype"] == "bfloat16")
        rank = "" if dense else "/r2"
        assert name == (f"linear/{row['variant']}/4x4x4:4x4x4{rank}/b3/{row['phase']}/"
                        f"{row['dtype']}/cpu/t1")


def test_dense_is_its_own_baseline(all_variants):
    dense = [row for row in rows_of(all_variants).values() if row["variant"] == "dense"]
    assert len(dense) == 6
    for row in dense:
        assert float(row["peak_ratio_to_dense"]) == float(row["time_ratio_to_dense"]) == 1


def test_ratio_is_against_the_dense_row(all_variants):
    rows = ran(all_variants)
    for row in rows.values():
        dense = rows[f"linear/dense/4x4x4:4x4x4/b3/{row['phase']}/{row['dtype']}/cpu/t1"]
        assert float(row["peak_ratio_to_dense"]) == pytest.approx(
            int(row["peak_bytes"]) / int(dense["peak_bytes"]), rel=1e-5)


def test_repro_runs_the_one_cell(all_variants, tmp_path):
    rows = rows_of(all_variants)
    for variant in ("dense", "sequential"):
        name = next(name for name in rows if f"/{variant}/" in name)
        _, _, flags = rows[name]["repro"].partition(" -- ")
        assert listed(sweep(tmp_path, *shlex.split(flags), "--list", program=SWEEP)) == [name]


def test_run_json_says_what_made_it(all_variants):
    info = json.loads((all_variants / "run.json").read_text())
    for key in ("libtorch", "gemm_library", "command", "flags", "started_utc", "finished_utc"):
        assert info[key], key
    for key in ("cpu_model", "vector_extensions", "cores", "memory_bytes", "kernel", "compiler"):
        assert info["machine"][key], key
    statuses = [row["status"] for row in rows_of(all_variants).values()]
    assert info["cells"] == {status: statuses.count(status) for status in set(statuses)}
    assert info["fma_peak_gflops"]["float32/t1"] > 0
    assert info["bandwidth_gb_per_s"]["memory/t1"] > 0


def test_memory_is_deterministic(tmp_path):
    def figures(out):
        sweep(tmp_path, "--d=3", "--rank=2", "--batch=1,5", "--phase=inference,train,step-sgd",
              "--threads=1", "--measure=memory", f"--out={out}", program=SWEEP)
        rows = rows_of(tmp_path / out)
        for row in rows.values():
            assert {row[column] for column in TIMES} == {""}
        return {name: [row[column] for column in MODELLED + ["max_relative_error"]]
                for name, row in rows.items()}

    assert figures("one") == figures("two")


def test_time_alone(tmp_path):
    sweep(tmp_path, *QUICK, "--variant=sequential", "--measure=time", "--out=run")
    for row in rows_of(tmp_path / "run").values():
        assert float(row["time_ns"]) > 0
        assert float(row["time_ratio_to_dense"]) > 0
        assert float(row["max_relative_error"]) <= 1e-5
        assert {row[column] for column in [*MODELLED, "peak_ratio_to_dense"]} == {""}


def test_crossover_is_the_formulas(tmp_path):
    """Held bytes of `sequential`: the cores and a permuted copy of each, x, and 2 r B d^3 elements.

    They pass the dense layer's d^6 + B d^3 when 2 d^2 (r^2 + 2r) + 2 r B d^3 > d^6: with d = 4 and
    r = 2 when B > 15. The thread's law, 2 B r > d^3, says B > 16.
    """
    done = sweep(tmp_path, "--d=4", "--rank=2", "--batch=1", "--phase=train", "--threads=1",
                 "--measure=memory", "--variant=sequential", "--crossovers=train", "--out=run")
    assert done.returncode == 0
    with open(tmp_path / "run/crossover.csv", newline="", encoding="utf-8") as file:
        held, peak = csv.DictReader(file, strict=True)
    assert (held["metric"], held["verdict"]) == ("held", "measured")
    assert held["crossover_batch"] == held["crossover_batch_model"] == "16"
    assert held["claim_batch"] == "17"
    assert float(held["k"]) == 2 * 16 * 2 / 4**3
    assert peak["metric"] == "peak"
    assert peak["crossover_batch"] == peak["crossover_batch_model"]
