"""Runs gpu_check on a machine that has a GPU and PyTorch, but not Bazel.

    python3 gpu_check_run.py [--out=DIR]

Needs, beside this file: the program `gpu_check`, `gpu.flags` and the libraries it was packed with
(//benchmarks:gpu_check_bundle). LibTorch is that of the Python that runs this: torch 2.11.0 for CUDA 13.
Runs the tests of the device, then sweeps the preset, prints both as tables, and leaves DIR with
tests.txt, results.csv, device.csv, run.json and summary.md. It ends within five minutes.

Exit codes: 0 all well; 1 a test failed or a cell was not ok; 2 the command line; 3 this machine cannot
run it: no torch, another torch, or no device; 4 DIR cannot be written.
"""

import argparse
import csv
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import time

TORCH = "2.11.0"
CUDA = "13."
LIMIT_S = 285  # Of all; what is left when the tests are done is the sweep's.
TESTS_LIMIT_S = 120

FAILED, USAGE, CANNOT_RUN, CANNOT_WRITE = 1, 2, 3, 4


class CannotRun(Exception):
    """Why, as one sentence."""


def torch_directory():
    """Of the torch package that this Python would import; it is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotRun(f"{sys.executable} has no torch; run this by a Python that has torch {TORCH}")
    directory = pathlib.Path(spec.origin).parent
    try:
        text = (directory / "version.py").read_text()
    except OSError as error:
        raise CannotRun(f"the torch in {directory} does not tell its version: {error}") from error
    found = {name: match[1] for name in ("__version__", "cuda")
             if (match := re.search(rf"^{name}\b[^=]*= '([^']*)'", text, re.MULTILINE))}
    version, cuda = found.get("__version__", "unknown"), found.get("cuda")
    if version.split("+")[0] != TORCH:
        raise CannotRun(f"{sys.executable} has torch {version}; gpu_check was built for torch {TORCH}, "
                        "whose libraries alone fit it")
    if cuda is None or not cuda.startswith(CUDA):
        raise CannotRun(f"torch {version} in {directory} is for "
                        f"{'CUDA ' + cuda if cuda else 'the CPU alone'}; gpu_check needs the one for "
                        f"CUDA {CUDA}x")
    return directory


def environment(here, torch):
    """LD_LIBRARY_PATH with LibTorch's libraries and those of the nvidia-* packages beside it."""
    packages = sorted(torch.parent.glob("nvidia/*/lib"))
    paths = [here / "lib", torch / "lib", *packages]
    if "LD_LIBRARY_PATH" in os.environ:
        paths.append(os.environ["LD_LIBRARY_PATH"])
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, paths))}


def probe(program, env):
    """What the device is, as JSON text."""
    try:
        found = subprocess.run([program, "device"], env=env, capture_output=True, text=True, timeout=60,
                               check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotRun("the device does not answer within a minute") from error
    except OSError as error:
        raise CannotRun(f"{program} does not start: {error.strerror}") from error
    if found.returncode != 0:
        reason = found.stderr.strip().splitlines()
        raise CannotRun(reason[-1].removeprefix("gpu_check: ") if reason
                        else f"{program} ended with exit code {found.returncode}")
    return found.stdout


def run_tests(program, env, log, limit_s):
    """True if every test passed; their output goes into the log and, but for its middle, the screen."""
    try:
        done = subprocess.run([program, "tests"], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        text = partial.decode(errors="replace") if isinstance(partial, bytes) else partial
        text += f"\nstill running after {limit_s:.0f} s\n"
        code = FAILED
    log.write_text(text)
    lines = [line for line in text.splitlines()
             if re.match(r"\[ +(OK|FAILED|SKIPPED|PASSED) +\]|.*(Failure|error:|still running)", line)]
    print("\n".join(lines[-60:]))
    ran = re.search(r"\[ +PASSED +\] (\d+) test", text)
    if code == 0 and (ran is None or int(ran[1]) == 0):
        print("no test ran")
        return False
    return code == 0


def run_sweep(program, env, here, out, limit_s):
    """The sweep's exit code; None if it was stopped for time. Rows written by then are kept."""
    command = [program, "sweep", f"--preset={here / 'gpu.flags'}", f"--out={out}"]
    with subprocess.Popen(command, env=env) as sweep:
        try:
            return sweep.wait(limit_s)
        except subprocess.TimeoutExpired:
            sweep.terminate()
            try:
                sweep.wait(10)
            except subprocess.TimeoutExpired:
                sweep.kill()
            return None


def number(row, column, scale=1.0, digits=2):
    return f"{float(row[column]) * scale:.{digits}f}" if row.get(column) else ""


def summary(rows):
    """A Markdown table: one line for each cell."""
    header = ("cell", "status", "time, us", "/dense", "peak, MiB", "/dense", "TFLOP/s", "error", "reason")
    table = [header, tuple("---" for _ in header)]
    for row in rows:
        table.append((row["cell"], row["status"], number(row, "time_ns", 1e-3, 1),
                      number(row, "time_ratio_to_dense"), number(row, "peak_bytes", 2**-20, 1),
                      number(row, "peak_ratio_to_dense"), number(row, "gflops", 1e-3),
                      f"{float(row['max_relative_error']):.1e}" if row["max_relative_error"] else "",
                      row["reason"].replace("|", "/")))
    return "\n".join("| " + " | ".join(line) + " |" for line in table) + "\n"


def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main(arguments=None, here=pathlib.Path(__file__).resolve().parent):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="directory for the results, made if missing")
    flags = parser.parse_args(arguments)
    started = time.monotonic()
    out = flags.out or pathlib.Path("gpu_check-" + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    program = here / "gpu_check"
    try:
        if not program.exists():
            raise CannotRun(f"{program} is missing; unpack the whole of gpu_check_bundle.tar.gz")
        env = environment(here, torch_directory())
        device = probe(program, env)
    except CannotRun as why:
        print(f"gpu_check: {why}", file=sys.stderr)
        return CANNOT_RUN
    try:
        if (out / "results.csv").exists():
            print(f"gpu_check: {out} already holds a run; name another directory by --out",
                  file=sys.stderr)
            return USAGE
        out.mkdir(parents=True, exist_ok=True)
        (out / "device.json").write_text(device)
        print(device, end="")
        tested = run_tests(program, env, out / "tests.txt", TESTS_LIMIT_S)
        left_s = LIMIT_S - (time.monotonic() - started)
        code = run_sweep(program, env, here, out.resolve(), left_s)
        rows = read_rows(out / "results.csv")
        text = summary(rows)
        (out / "summary.md").write_text(text)
    except OSError as error:
        print(f"gpu_check: cannot write into {out}: {error}", file=sys.stderr)
        return CANNOT_WRITE
    print(text, end="")
    bad = [row for row in rows if row["status"] not in ("ok", "skipped")]
    ok = sum(row["status"] == "ok" for row in rows)
    print(f"tests: {'passed' if tested else 'FAILED, see tests.txt'}; cells: {ok} ok, {len(bad)} failed, "
          f"{len(rows) - ok - len(bad)} skipped" + ("; stopped for time" if code is None else "") +
          f"; {time.monotonic() - started:.0f} s\n{out}")
    return 0 if tested and code == 0 and ok > 0 and not bad else FAILED


if __name__ == "__main__":
    sys.exit(main())
