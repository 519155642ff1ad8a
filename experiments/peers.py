"""ttbench beside the libraries people use: `bazel run //experiments:peers`.

Every cell of the grid is run by the suite's fused kernels and by the libraries' TT layers, in one
process with the same weights, threads and allocator, and timed in turns (peers_worker.py). Without
flags the grid is that of //experiments:crossover.
"""

import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from experiments import peers_cells
from experiments import python_variants
from plotting import peers as summary
from plotting import results

_HERE = pathlib.Path(__file__).parent
_ROOT = _HERE.parent
_USAGE = 2
_GRID_HELP = """\
Every other flag chooses cells and is the sweep's: --d, --cores, --shape, --rank, --batch, --phase,
--threads, --filter, --shard (bazel run //benchmarks:sweep -- --help)."""


class WorkerEnded(Exception):
    """The worker is gone, or was ended at its deadline: status and reason for the row."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Worker:
    """The process that measures; its replies are lines of JSON."""

    def __init__(self, command):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_ROOT / "kernels" / "python")},
            start_new_session=True)  # Ctrl-C is this process's to handle.
        self._unread = b""

    def send(self, request):
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # The next reply() says how it ended.

    def reply(self, deadline):
        """The next reply; raises WorkerEnded. `deadline` is of time.monotonic()."""
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self.end()
                raise WorkerEnded("timeout", "ran past --cell-timeout")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                code = self._process.wait()
                raise WorkerEnded("crashed", f"its process ended by {signal.Signals(-code).name}"
                                  if code < 0 else f"its process ended with exit code {code}")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def end(self):
        self._process.kill()
        self._process.wait()


class Workers:
    """Keeps a worker running: one for all cells, a new one after it ended."""

    _START_S = 120

    def __init__(self, command):
        self._command = command
        self._worker = None
        self.greeting = None

    def get(self):
        if self._worker is None:
            self._worker = Worker(self._command)
            self.greeting = self._worker.reply(time.monotonic() + self._START_S)
            if "refused" in self.greeting:
                raise ValueError(self.greeting["refused"])
        return self._worker

    def end(self):
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def measure(workers, request, timeout_s):
    """{side: Outcome} of one request. A side that ends the worker costs only its own row."""
    outcomes, sides = {}, list(request["sides"])
    while sides:
        worker = workers.get()
        worker.send({**request, "sides": sides})
        at, found = None, {}
        deadline = time.monotonic() + timeout_s
        try:
            while not (reply := worker.reply(deadline)).get("done"):
                if "begin" in reply:
                    at = reply["begin"]
                elif "times" in reply:
                    _take_times(found, reply)
                else:
                    _take_result(found, reply)
            return {**outcomes, **found}
        except WorkerEnded as ended:
            workers.end()
            failure = peers_cells.Outcome(ended.status, ended.reason)
            if not at:  # While all were timed, or before any: nobody's own failure.
                return {**outcomes, **dict.fromkeys(sides, failure)}
            outcomes[at] = failure
            sides.remove(at)
    return outcomes


def _take_result(found, reply):
    figures = {name: value for name, value in reply.items()
               if name.endswith("_bytes") or name == "max_relative_error"}
    found[reply["side"]] = peers_cells.Outcome(
        reply["status"], reply["reason"], reply.get("algorithm", ""), figures)


def _take_times(found, reply):
    for side, samples in reply["times"].items():
        done = found[side]
        found[side] = peers_cells.Outcome(
            done.status, done.reason, done.algorithm, done.figures, tuple(samples),
            reply["iterations"][side], reply["stop_reason"])


def choose_sides(patterns, variants, peers, python=()):
    """The sides that match any of the globs; dense, which ratios are against, always.

    Without patterns, the user's own functions (`python`) run instead of the libraries. Raises
    ValueError, one sentence, for a glob that matches nothing.
    """
    known = list(dict.fromkeys([*variants, *peers, *python]))
    if patterns is None:
        ours = ["auto"] if "auto" in variants else ["fused", "fused-panel"]
        return [peers_cells.BASELINE, "sequential", *ours, *(python or peers)]
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise ValueError(f"--variant: '{pattern}' matches nothing; there are "
                             f"{', '.join(known)}")
    chosen = [name for name in known if any(fnmatch.fnmatch(name, p) for p in patterns)]
    return list(dict.fromkeys([peers_cells.BASELINE, *chosen]))


def _milliseconds(text):
    for unit, factor in (("ms", 1), ("s", 1000)):
        if text.endswith(unit):
            try:
                value = float(text[:-len(unit)]) * factor
            except ValueError:
                break
            if value > 0:
                return value
            break
    raise argparse.ArgumentTypeError(f"'{text}' is no time; write it as in 8ms or 2s")


def _parse(argv):
    parser = argparse.ArgumentParser(prog="peers", description=__doc__, epilog=_GRID_HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--python", help=argparse.SUPPRESS)
    parser.add_argument("--variant", type=lambda text: text.split(","),
                        help="sides, the suite's variants and peer-*; takes globs (default: auto, "
                        "or fused,fused-panel where there is no auto; sequential, dense, peer-*)")
    parser.add_argument("--python-variant", action="append", default=[], metavar="FILE.py[:FUNCTION]",
                        help="a function(x, cores) of your own as a side, py-<name>, instead of the "
                        "libraries; may be given again")
    parser.add_argument("--preset", default="default",
                        help="the grid: a preset of //experiments:crossover or a file of the "
                        "sweep's flags (default: default)")
    parser.add_argument("--min-time", type=_milliseconds, default="5ms",
                        help="least time of one repetition (default: 5ms)")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="fewest rounds, unless time runs out; three times as many if noisy "
                        "(default: 5)")
    parser.add_argument("--time-limit", type=_milliseconds, default="400ms",
                        help="no round past the third is begun later than this (default: 400ms)")
    parser.add_argument("--cell-timeout", type=_milliseconds, default="60s",
                        help="deadline of a cell, all sides together (default: 60s)")
    parser.add_argument("--seed", type=int, default=1, help="of inputs and weights (default: 1)")
    parser.add_argument("--out", help="directory for the results, made if missing (default: "
                        "results/runs/peers-<UTC time> of the workspace)")
    parser.add_argument("--list", action="store_true", help="print the cells; run nothing")
    return parser.parse_known_args(argv)


def _sweep(preset):
    file = _HERE / "presets" / "crossover" / f"{preset}.flags"
    return [_ROOT / "benchmarks" / "sweep", f"--preset={file if file.exists() else preset}"]


def _plan(preset, grid_flags):
    """The cells, as the sweep plans them; raises SystemExit with its exit code."""
    # The deadline and the skipping of slow cells are this program's own.
    done = subprocess.run(
        [*_sweep(preset), *grid_flags, "--variant=sequential", "--cell-timeout=3600s", "--list"],
        stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return peers_cells.parse_plan(done.stdout)


def _stands():
    """Where the user stands, which `bazel run` leaves."""
    return os.environ.get("BUILD_WORKING_DIRECTORY", ".")


def _directory(out, experiment):
    if out:
        return pathlib.Path(_stands(), out)
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
    return pathlib.Path(workspace, "results", "runs", f"{experiment}-{_utc_now():%Y%m%dT%H%M%SZ}")


def python_specs(texts):
    """What --python-variant names, by the names of their rows; raises ValueError."""
    specs = {}
    for text in texts:
        spec = python_variants.parse(text, _stands())
        if spec.name in specs:
            raise python_variants.VariantError(
                f"--python-variant: two are named {spec.name}; name a function: {text}:FUNCTION")
        specs[spec.name] = spec
    return specs


def format_rows(rows, sides):
    """Lines for people: status and ratios to dense of some sides' rows."""
    lines = [f"{'time/dense':>11} {'peak/dense':>11}  cell"]
    for row in rows:
        if row.variant not in sides:
            continue
        ratios = [f"{ratio:.3g}" if ratio else "" for ratio in (row.time_ratio_to_dense,
                                                               row.peak_ratio_to_dense)]
        lines.append(f"{ratios[0]:>11} {ratios[1]:>11}  {row.cell}"
                     + ("" if row.ok else f"  {row.status}: {row.reason}"))
    return "\n".join(lines)


def _utc_now():
    return datetime.datetime.now(datetime.timezone.utc)


def _write_info(directory, info):
    text = json.dumps(info, indent=2) + "\n"
    (directory / "run.json.new").write_text(text, encoding="utf-8")
    os.replace(directory / "run.json.new", directory / "run.json")


def _calibrate(flags, grid_flags, directory):
    """Has a sweep measure the rates by which `auto` picks; returns the path of the table."""
    table = directory / "calibration.csv"
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        subprocess.run([*_sweep(flags.preset), *grid_flags, "--variant=auto", "--measure=memory",
                        f"--out={scratch}/run", "--quiet"],
                       stdout=subprocess.DEVNULL, check=False)
        made = pathlib.Path(scratch, "run", "calibration.csv")
        if not made.is_file():
            raise ValueError("the rates by which auto picks could not be measured; "
                             "leave auto out by --variant")
        os.replace(made, table)
    return str(table)


def _run(cells, sides, specs, workers, writer, flags, info, calibration):
    """Measures every cell and writes its rows; returns the statuses counted."""
    counts, dense_rows = {}, set()
    for i, cell in enumerate(cells):
        begun = time.monotonic()
        if cell.skip_reason:
            outcomes = dict.fromkeys(sides, peers_cells.Outcome("skipped", cell.skip_reason))
        else:
            outcomes = measure(workers, {
                "in_modes": cell.in_modes, "out_modes": cell.out_modes, "ranks": cell.ranks,
                "batch": cell.batch, "phase": cell.phase, "seed": flags.seed, "sides": sides,
                "min_time_ns": flags.min_time * 1e6, "time_limit_ns": flags.time_limit * 1e6,
                "repetitions": flags.repetitions,
                # As the sweep: three quarters of what was free at the start.
                "memory_budget_bytes": info["memory_budget_bytes"],
                "calibration": calibration,
            }, flags.cell_timeout / 1000)
        for side in sides:
            name = cell.name(side)
            if side == peers_cells.BASELINE:
                # One layer for all ranks, timed along with each: the first is its row.
                if name in dense_rows:
                    continue
                dense_rows.add(name)
            row = peers_cells.build_row(cell, side, outcomes[side],
                                        outcomes[peers_cells.BASELINE], flags.seed,
                                        info["experiment"])
            if side in specs:
                row["repro"] += f" --python-variant={shlex.quote(specs[side].text)}"
            writer.append(row)
            counts[outcomes[side].status] = counts.get(outcomes[side].status, 0) + 1
            if outcomes[side].status != "ok":
                print(f"peers: {name}: {outcomes[side].status}: {outcomes[side].reason}",
                      file=sys.stderr)
        print(f"[{i + 1}/{len(cells)}] {cell.shape}/r{cell.rank_label}/b{cell.batch}/"
              f"{cell.phase}  {time.monotonic() - begun:.1f}s", file=sys.stderr, flush=True)
    return counts


def _terminated(*_):
    raise SystemExit(143)


def main(argv):
    flags, grid_flags = _parse(argv)
    try:
        specs = python_specs(flags.python_variant)
        cells = _plan(flags.preset, grid_flags)
    except (peers_cells.CellError, python_variants.VariantError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return _USAGE
    threads = {cell.threads for cell in cells}
    if len(threads) != 1:
        print("peers: --threads: one number; a process keeps its threads", file=sys.stderr)
        return _USAGE
    workers = Workers([flags.python, _HERE / "peers_worker.py",
                       _ROOT / "benchmarks" / "python" / "libttbench_measure.so",
                       str(*threads), *(f"{spec.path}:{spec.function}" for spec in specs.values())])
    experiment = "python" if specs else "peers"
    signal.signal(signal.SIGTERM, _terminated)
    begun = time.monotonic()
    try:
        workers.get()
        greeting = workers.greeting
        sides = choose_sides(flags.variant, greeting["variants"], greeting["peers"],
                             list(specs))
        if flags.list:
            for cell in cells:
                print(*(cell.name(side) for side in sides), sep="\n")
            print(f"{len(cells)} cells of {len(sides)} sides")
            return 0
        directory = _directory(flags.out, experiment)
        if (directory / "results.csv").exists():
            raise ValueError(f"--out: {directory} already holds a run; name another directory")
        directory.mkdir(parents=True, exist_ok=True)
        info = {**greeting["fingerprint"], "experiment": experiment,
                "command": shlex.join(["bazel", "run", "//experiments:peers", "--",
                                       *(a for a in argv if not a.startswith("--python="))]),
                "versions": greeting["versions"], "sides": sides,
                "memory_budget_bytes": greeting["available_memory_bytes"] * 3 // 4,
                "started_utc": f"{_utc_now():%Y-%m-%dT%H:%M:%SZ}"}
        for warning in info["warnings"]:
            print(f"warning: {warning}", file=sys.stderr)
        _write_info(directory, info)
        calibration = _calibrate(flags, grid_flags, directory) if "auto" in sides else None
        counts = _run(cells, sides, specs, workers, peers_cells.RowWriter(directory), flags, info,
                      calibration)
        info |= {"cells": counts, "wall_s": time.monotonic() - begun,
                 "finished_utc": f"{_utc_now():%Y-%m-%dT%H:%M:%SZ}"}
        _write_info(directory, info)
    except ValueError as error:
        print(f"peers: {error}", file=sys.stderr)
        return _USAGE
    except WorkerEnded as ended:
        print(f"peers: the libraries could not be loaded: {ended.reason}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"peers: {error.filename or flags.out} could not be written: {error.strerror}",
              file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("peers: stopped; the rows so far are written", file=sys.stderr)
        return 130
    finally:
        workers.end()
    try:
        if specs:
            print(format_rows(results.load(directory).rows, specs))
            print(directory)
            return _exit_code(counts)
        text, paths = summary.draw_all(directory)
    except (results.ResultsError, OSError) as error:
        print(f"peers: the rows are written, the summary is not: {error}", file=sys.stderr)
        return 1
    print(text)
    print(f"{len(paths)} tables and plots; read {paths[0]}")
    print(directory)
    return _exit_code(counts)


def _exit_code(counts):
    return 0 if set(counts) <= {"ok", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
