"""How often the regression check errs on this machine: `bazel run //benchmarks/testing:regress_trial`.

Records a baseline, and then checks it again and again with the very same program: at first nothing
is changed; then, in turns with such null checks, slow-downs of 10% and 5% and a copy of x are
planted in cells drawn at random (planted_variant.cc). Every check is a real one, from the passes to
the exit code. Prints how many found what was planted, and how many called what was not; the last
line is the directory with trial.json and every check's passes and reports.
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
_PLANTS = {"0.1": 3, "0.05": 3, "copy": 1}  # What is planted in how many cells of a check.
_LONG_NS = 100_000

# One thread: two on a machine of two cores meet everything else that runs there.
_PRESET = f"""
--phase=inference --dtype=float32 --threads=1 --variant=dense,{_VARIANT}
--min-time=4ms --repetitions=3
[cubes-of-8]
--d=8 --rank=4,8,16 --batch=32,128
[cubes-of-16]
--d=16 --rank=2,4,8 --batch=4,16
[layers]
--shape=10x14x15:2x5x41,4x7x4x7:5x5x5x5,8x8x8:8x16x16 --rank=8 --batch=32,64
"""


def _key(row):
    """As the variant knows the layer."""
    return "/".join(row.cell.split("/")[2:5])


def _check(baseline, out, flags, plants):
    """One run of the check: {cell: verdicts of its time and its bytes}, and the exit code."""
    os.environ[_PLANT] = ",".join(f"{key}={what}" for key, what in plants.items())
    argv = [f"--baseline={baseline}", f"--sweep={_SWEEP}", f"--passes={flags.passes}",
            f"--confirm-passes={flags.confirm_passes}", f"--out={out}", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = regress.main(argv)
    if code not in (0, 1):
        sys.exit(f"regress_trial: the check in {out} ended with {code}: {err.getvalue()}")
    verdicts = collections.defaultdict(dict)
    for finding in json.loads((out / "regress.json").read_text(encoding="utf-8"))["findings"]:
        verdicts[finding["cell"]][finding["kind"]] = finding["verdict"]
    return verdicts, code


def _record_baseline(out, flags):
    """Passes of the baseline; returns the rows of a pass that are `ok`, less dense's."""
    preset = out / "trial.flags"
    preset.write_text(_PRESET, encoding="utf-8")
    subprocess.run([_SWEEP, f"--preset={preset}", f"--out={out / 'run'}", "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    _check(out / "run", out / "baseline", argparse.Namespace(
        passes=flags.baseline_passes, confirm_passes=1), {})
    rows = regress.load_side(out / "baseline")[0].rows
    return [row for row in rows if row.ok and not row.baseline]


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
    add("--baseline-passes", type=int, default=10, metavar="N", help="of the baseline [10]")
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
    rows = [row for row in _record_baseline(out, flags) if row.time_ns >= _LONG_NS]
    random_cells = random.Random(flags.seed)
    tally = _Tally()
    for i in range(max(flags.null, flags.planted)):
        for kind, count in (("null", flags.null), ("planted", flags.planted)):
            if i >= count:
                continue
            planted, keys = _draw(rows, random_cells) if kind == "planted" else ({}, {})
            name = f"{kind}-{i + 1}"
            verdicts, code = _check(out / "baseline", out / name, flags, keys)
            tally.add(name, planted, verdicts, code)
            print(f"{name}: " + "; ".join(tally.words()).replace("\n", " "), file=sys.stderr)
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
