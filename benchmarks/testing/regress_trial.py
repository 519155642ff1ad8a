"""How often the regression check errs on this machine: `bazel run //benchmarks/testing:regress_trial`.

Checks a program against itself again and again, both run in turns (--baseline-sweep): with nothing
changed, and in turns with that, with slow-downs of 10% and 5% and a copy of x planted in cells
drawn at random (planted_variant.cc). Every check is a real one, from the passes to the exit code.
Prints how many found what was planted, and how many called what was not; the last line is the
directory with trial.json and every check's passes and reports.
"""

import argparse
import collections
import contextlib
import datetime
import io
import json
import os
import pathlib
import random
import subprocess
import sys

from benchmarks import merge
from benchmarks import regress

_SWEEP = pathlib.Path(__file__).parent / "planted_sweep"
_VARIANT = "test-planted"
_PLANT = "TTBENCH_TEST_PLANT"
_PLANTS = {"0.1": 2, "0.05": 2, "copy": 1}  # What is planted in how many cells of a check.
_LONG_NS = 100_000

# One thread: two on a machine of two cores meet everything else that runs there.
_PRESET = f"""
--phase=inference --dtype=float32 --threads=1 --variant={_VARIANT}
--min-time=3ms --repetitions=3
[cubes-of-8]
--d=8 --rank=8,16 --batch=32,128
[cubes-of-16]
--d=16 --rank=4,8 --batch=4,16
[layers]
--shape=4x7x4x7:5x5x5x5,8x8x8:8x16x16 --rank=8 --batch=32,64
"""

# The baseline's program: the same, but for what is planted.
_BASELINE_SWEEP = f"""#!/bin/sh
unset {_PLANT}
exec '{_SWEEP}' "$@"
"""


def _key(row):
    """As the variant knows the layer."""
    return "/".join(row.cell.split("/")[2:5])


def _check(directory, out, flags, plants):
    """One run of the check: {cell: verdicts of its time and its bytes}, and the exit code."""
    os.environ[_PLANT] = ",".join(f"{key}={what}" for key, what in plants.items())
    argv = [f"--baseline={directory / 'run'}", f"--sweep={_SWEEP}",
            f"--baseline-sweep={directory / 'baseline_sweep'}", f"--passes={flags.passes}",
            f"--confirm-passes={flags.confirm_passes}", f"--out={out}", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = regress.main(argv)
    if code not in (0, 1):
        sys.exit(f"regress_trial: the check in {out} ended with {code}: {err.getvalue()}")
    verdicts = collections.defaultdict(dict)
    for finding in json.loads((out / "regress.json").read_text(encoding="utf-8"))["findings"]:
        if finding["verdict"] != "same":
            verdicts[finding["cell"]][finding["kind"]] = finding["verdict"]
    return verdicts, code


def _record_baseline(out):
    """Runs the cells once; returns the rows of the planted variant."""
    preset, program = out / "trial.flags", out / "baseline_sweep"
    preset.write_text(_PRESET, encoding="utf-8")
    program.write_text(_BASELINE_SWEEP, encoding="utf-8")
    program.chmod(0o755)
    subprocess.run([program, f"--preset={preset}", f"--out={out / 'run'}", "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    run, = regress.load_side(out / "run")
    return [row for row in run.rows if row.ok and row.variant == _VARIANT]


class _Tally:
    def __init__(self):
        self.null_checks = self.null_alarms = self.checks = 0
        self.planted, self.found = collections.Counter(), collections.Counter()
        self.false_calls = []  # (check, cell, verdict)

    def add(self, name, planted, verdicts, code):
        if planted:
            self.checks += 1
        else:
            self.null_checks += 1
            self.null_alarms += code == 1
        for cell, what in planted.items():
            self.planted[what] += 1
            found = ({*verdicts[cell].values()} & {"more memory", "now fails"} if what == "copy"
                     else verdicts[cell].get("time") == "slower")
            self.found[what] += bool(found)
        for cell, by_kind in verdicts.items():
            if cell not in planted:
                self.false_calls += [(name, cell, verdict) for verdict in by_kind.values()
                                     if verdict in ("slower", "faster", "more memory", "now fails")]

    def words(self):
        yield f"nothing planted: {self.null_alarms} false alarms in {self.null_checks} checks"
        for what in _PLANTS:
            name = "a copy of x" if what == "copy" else f"{float(what):.0%} slower"
            yield (f"{name}: found {self.found[what]} of {self.planted[what]} in {self.checks} "
                   "checks")
        yield f"called in cells where nothing was planted, all checks: {len(self.false_calls)}"
        for name, cell, verdict in self.false_calls:
            yield f"    {name}: {cell} {verdict}"


def _draw(rows, random_cells):
    """{cell: what is planted in it}, and the same by the variant's keys."""
    chosen = random_cells.sample(rows, sum(_PLANTS.values()))
    whats = [what for what, count in _PLANTS.items() for _ in range(count)]
    return ({row.cell: what for row, what in zip(chosen, whats)},
            {_key(row): what for row, what in zip(chosen, whats)})


def _parse(argv):
    parser = argparse.ArgumentParser(prog="regress_trial", allow_abbrev=False,
                                     description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--null", type=int, default=10, metavar="N", help="checks with nothing planted [10]")
    add("--planted", type=int, default=14, metavar="N", help="checks with plants [14]")
    add("--passes", type=int, default=5, metavar="N", help="of each check [5]")
    add("--confirm-passes", type=int, default=20, metavar="N", help="of each check [20]")
    add("--seed", type=int, default=1, help="of the draw of cells [1]")
    add("--out", metavar="DIR", help="[results/runs/regress-trial-<time>]")
    return parser.parse_args(argv)


def main(argv):
    flags = _parse(argv)
    now = datetime.datetime.now(datetime.timezone.utc)
    out = (merge.user_path(flags.out) if flags.out else pathlib.Path(
        os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "results", "runs",
        f"regress-trial-{now:%Y%m%dT%H%M%SZ}").resolve())
    out.mkdir(parents=True, exist_ok=True)
    rows = [row for row in _record_baseline(out) if row.time_ns >= _LONG_NS]
    random_cells = random.Random(flags.seed)
    tally = _Tally()
    for i in range(max(flags.null, flags.planted)):
        for kind, count in (("null", flags.null), ("planted", flags.planted)):
            if i >= count:
                continue
            planted, keys = _draw(rows, random_cells) if kind == "planted" else ({}, {})
            name = f"{kind}-{i + 1}"
            verdicts, code = _check(out, out / name, flags, keys)
            tally.add(name, planted, verdicts, code)
            print(f"{name}: " + "; ".join(tally.words()), file=sys.stderr)
    words = "\n".join([f"{len(rows)} cells of {_LONG_NS // 1000} µs or more", *tally.words()])
    (out / "trial.json").write_text(json.dumps({
        "cells": len(rows), "seed": flags.seed, "null_checks": tally.null_checks,
        "null_alarms": tally.null_alarms, "planted_checks": tally.checks,
        "planted": tally.planted, "found": tally.found, "false_calls": tally.false_calls,
    }, indent=2) + "\n", encoding="utf-8")
    print(words)
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
