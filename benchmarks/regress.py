"""Compares this version with a baseline run: `bazel run //benchmarks:regress -- --baseline=DIR`.

Runs the baseline's own cells again with the sweep program, or takes --candidate=DIR. Bytes and
FLOPs are compared exactly; time by time_ratio_to_dense, or where a baseline's program runs in turns
by itself, against this machine's noise (noise.py).
docs/regression.md says how, and what the exit codes are.
"""

import argparse
import datetime
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from benchmarks import exact
from benchmarks import merge
from benchmarks import noise
from benchmarks import verdicts
from plotting import results as results_lib

_SWEEP = pathlib.Path(__file__).parent / "sweep"
_OK, _REGRESSION, _USAGE, _NOTHING, _WRITE = 0, 1, 2, 3, 4

# Of a repro line, those flags that a preset can have for all of its cells only.
_FOR_ALL = ("--seed", "--memory-budget")


class Stop(Exception):
    """Ends the program with an exit code and a sentence for the user."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


# ---- Runs on disk


def _number(path):
    return [int(text) for text in re.findall(r"\d+", path.name)]


def load_side(directory):
    """The passes of a side: the run in `directory`, or those in its pass-1, pass-2 and so on."""
    directory = pathlib.Path(directory)
    passes = sorted((path for path in directory.glob("pass-*")
                     if (path / "results.csv").is_file()), key=_number)
    if not passes or (directory / "results.csv").is_file():
        passes = [directory]
    return [results_lib.load(os.fspath(path)) for path in passes]


def _glob_matches(pattern, text):
    """As the sweep's --filter: only * and ? are special."""
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text) is not None


def rows_of(passes, pattern):
    """{cell: row}, the first in which memory was measured, else the first."""
    rows = {}
    for one in passes:
        for row in one.rows:
            if pattern and not _glob_matches(pattern, row.cell):
                continue
            if row.cell not in rows or (rows[row.cell].ok and row.ok and row.peak_bytes
                                        and not rows[row.cell].peak_bytes):
                rows[row.cell] = row
    return rows


def ratios_of(passes, cells):
    """Of each pass, {cell: time_ratio_to_dense}; the dense layer itself has nothing to say."""
    return [{row.cell: ratio for row in one.rows
             if row.cell in cells and not row.baseline and (ratio := one.time_ratio(row))}
            for one in passes]


def times_of(passes, cells):
    """Of each pass, {cell: time_ns}: to compare passes that were run in turns."""
    return [{row.cell: row.time_ns for row in one.rows if row.cell in cells and row.time_ns}
            for one in passes]


# ---- Running the sweep


def preset(lines):
    """A preset of one grid for each line of flags; what all lines have in common goes first."""
    split = [line.split() for line in lines]
    common = [flag for flag in split[0] if all(flag in other for other in split[1:])]
    text = " ".join(common) + "\n"
    for i, flags in enumerate(split if len(split) > 1 else ()):
        text += f"[grid-{i + 1}]\n" + " ".join(flag for flag in flags if flag not in common) + "\n"
    return text


def jobs_of_run(run):
    """The flags of a run, as lists of lines: one list for each sweep that made it."""
    jobs = [part.get("flags") for part in run.get("parts") or [run]]
    if not all(jobs):
        raise Stop(_USAGE, "The baseline's run.json does not say with which flags it was run; give "
                           "--candidate=DIR, a run of the same cells.")
    # Crossovers follow from bytes, and these are compared.
    return [[" ".join(flag for flag in line.split() if not flag.startswith("--crossovers="))
             for line in job] for job in jobs]


def jobs_of_cells(rows):
    """The same for these cells alone, by what each row says of how to repeat it."""
    jobs = {}
    for row in rows:
        flags = row.repro.partition(" -- ")[2]
        for_all = tuple(flag for flag in flags.split() if flag.startswith(_FOR_ALL))
        jobs.setdefault(for_all, []).append(flags)
    return list(jobs.values())


class Sweeps:
    """Runs a sweep program over lists of jobs."""

    def __init__(self, program, calibration, command, quiet):
        self._program, self._calibration = program, calibration
        self._environment = {**os.environ, "TTBENCH_COMMAND": command}
        self._quiet = ["--quiet"] if quiet else []

    def run(self, jobs, out, *flags):
        """Runs all jobs into `out`; returns what it holds then."""
        if len(jobs) == 1:
            self._run_one(jobs[0], out, flags)
        else:
            parts = [out / f"part-{i + 1}" for i in range(len(jobs))]
            for part, job in zip(parts, jobs):
                self._run_one(job, part, flags)
            merge.merge(parts, out)
        return results_lib.load(os.fspath(out))

    def _run_one(self, lines, out, flags):
        out.mkdir(parents=True, exist_ok=True)
        if self._calibration:
            # `auto` picks by the rates that the baseline's did.
            shutil.copy(self._calibration, out)
        with tempfile.NamedTemporaryFile("w", suffix=".flags") as file:
            file.write(preset(lines))
            file.flush()
            code = self._call([self._program, f"--preset={file.name}", f"--out={out}",
                               *self._quiet, *flags])
        if code in (0, 1):
            return  # The rows tell.
        if code == 2:
            raise Stop(_USAGE, "The sweep program refuses the baseline's flags, as it says above: "
                               "the baseline has variants or flags that this version lacks.")
        if code == 3:
            raise Stop(_NOTHING, "No cell of the baseline is left to run; loosen --filter.")
        raise Stop(code if code > 0 else 128 - code,
                   f"The sweep program ended early; its finished rows are in {out}.")

    def _call(self, command):
        # Ctrl-C reaches the sweep too, which stops in order; this process waits for it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminated = []
        try:
            with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                  env=self._environment) as process:
                signal.signal(signal.SIGTERM,
                              lambda *_: (terminated.append(True), process.terminate()))
                code = process.wait()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, before)
        # A sweep that was about to end has ended as if nothing had been said.
        return 128 + signal.SIGTERM if terminated and code in (0, 1) else code


# ---- The comparison


def _time_findings(outcome, column):
    for cell, judged in outcome.judgements.items():
        yield exact.Finding(cell, "time", judged.verdict, column, judged.before,
                            judged.before * (1 + judged.change),
                            "; ".join(filter(None, [
                                judged.words, judged.p is not None and f"p = {judged.p:.1g}"])))


def _time_notes(outcome, column, baseline_passes):
    floors = outcome.floors
    yield (f"Least change of time that is called: {floors['long']:.1%}; for cells under "
           f"{noise.SHORT_NS // 1000} µs, {floors['short']:.1%}.")
    if abs(outcome.common_shift) >= noise.MIN_EFFECT:
        yield (f"All time ratios together moved by {outcome.common_shift:+.1%}, taken out "
               "before cells were judged: dense itself changed, or most variants at once."
               if column == "time_ratio_to_dense" else
               f"All times together moved by {outcome.common_shift:+.1%}, taken out before cells "
               "were judged: most variants changed, or the programs were built differently.")
    if baseline_passes == 1:
        yield ("The baseline is a single run, so no change of time can be called, only suspected; "
               "record one of several passes (docs/regression.md), or give --baseline-sweep.")


def _refuse_other_machine(before, after, flags):
    """Whether the machines differ; raises Stop unless that is allowed."""
    difference = exact.difference_of_machines(before, after)
    if difference and not flags.allow_other_machine:
        raise Stop(_NOTHING, f"The baseline was run on another machine: {difference}. With "
                             "--allow-other-machine what does not depend on it is compared.")
    return difference


class Comparison:
    """Everything from the flags to the findings."""

    def __init__(self, flags, command, out):
        self._flags, self._out = flags, out
        self._baseline = load_side(merge.user_path(flags.baseline))
        self._old = rows_of(self._baseline, flags.filter)
        if not self._old:
            raise Stop(_NOTHING, "No cell of the baseline matches "
                                 f"--filter={flags.filter}." if flags.filter else
                                 "The baseline has no rows.")
        calibration = pathlib.Path(self._baseline[0].directory, "calibration.csv")
        self._jobs = [] if flags.candidate else jobs_of_run(self._baseline[0].run)
        # The sweep takes one --filter, and the last it is given.
        self._narrow = [f"--filter={flags.filter}"] if flags.filter else []
        if self._narrow and any("--filter=" in line for job in self._jobs for line in job):
            raise Stop(_USAGE, "The baseline has a --filter of its own; leave it out here.")
        programs = [flags.sweep or _SWEEP] + [flags.baseline_sweep] * bool(flags.baseline_sweep)
        self._sweeps = [Sweeps(program if program == _SWEEP else merge.user_path(program),
                               calibration if calibration.is_file() else None, command, flags.quiet)
                        for program in programs]
        self.notes = [note for one in self._baseline for note in one.notes]
        self.candidate_name = flags.candidate or "this version"

    def findings(self):
        flags = self._flags
        timed = "time" in flags.measure and any(
            row.time_ratio_to_dense and not row.baseline for row in self._old.values())
        if flags.candidate:
            candidate = load_side(merge.user_path(flags.candidate))
            self.notes += [note for one in candidate for note in one.notes]
            difference = _refuse_other_machine(self._baseline[0].run, candidate[0].run, flags)
        else:
            difference = _refuse_other_machine(self._baseline[0].run, self._probe(), flags)
            timed = timed and not difference
            candidate = self._run_passes(timed)
        if difference:
            self.notes.append(f"On another machine ({difference}): only figures that both sides "
                              "have a model for are compared, and no times.")
        new = rows_of(candidate, flags.filter)
        # One crash or wrong result in any pass is one too many.
        new.update((row.cell, row) for one in candidate for row in one.rows
                   if row.cell in new and row.status in ("crashed", "wrong"))
        if not self._old.keys() & new.keys():
            raise Stop(_NOTHING, "The baseline and the candidate have no cell in common.")
        found = exact.compare(self._old, new, bool(difference))
        if "memory" not in flags.measure:
            found = [f for f in found if f.kind == "status"]
        if timed and not difference:
            found += self._judge_times(candidate, new)
        return found

    def _probe(self):
        """run.json of one cell's run: on what machine this is, before anything long."""
        row = next((row for row in self._old.values() if row.ok), None)
        if row is None:
            raise Stop(_NOTHING, "No cell of the baseline ended ok: nothing to compare with.")
        with tempfile.TemporaryDirectory() as scratch:
            return self._sweeps[0].run(jobs_of_cells([row]), pathlib.Path(scratch, "run"),
                                       "--measure=memory", "--quiet").run

    def _run_passes(self, timed):
        flags = self._flags
        candidate, baseline = [], []
        for i in range(1, (flags.passes if timed else 1) + 1):
            measure = "time" if i > 1 or "memory" not in flags.measure else (
                "memory,time" if timed else "memory")
            print(f"pass {i} of {flags.passes if timed else 1}", file=sys.stderr)
            sides = [(self._sweeps[0], self._out, candidate, measure)]
            if timed and flags.baseline_sweep:
                sides.insert(i % 2, (self._sweeps[1], self._out / "baseline", baseline, "time"))
            for sweeps, out, passes, what in sides:
                passes.append(sweeps.run(self._jobs, out / f"pass-{i}", f"--measure={what}",
                                         *self._narrow))
        if baseline:
            self._baseline = baseline
        return candidate

    def _judge_times(self, candidate, new):
        cells = {cell for cell, row in new.items() if row.ok and self._old.get(cell, row).ok}
        times = {row.cell: row.time_ns for one in candidate for row in one.rows if row.time_ns}
        samples = self._samples
        outcome = noise.judge(samples(self._baseline, cells), samples(candidate, cells), times,
                              None if self._flags.candidate else self._run_again,
                              rerun_both=bool(self._flags.baseline_sweep))
        column = "time_ns" if samples is times_of else "time_ratio_to_dense"
        self.notes += _time_notes(outcome, column, len(self._baseline))
        return _time_findings(outcome, column)

    @property
    def _samples(self):
        """What is compared of times: they themselves only where both programs ran in turns."""
        return times_of if self._flags.baseline_sweep else ratios_of

    def _run_again(self, cells):
        flags = self._flags
        jobs = jobs_of_cells([self._old[cell] for cell in cells])
        print(f"{len(cells)} cells once more, suspicious ones and others beside them",
              file=sys.stderr)
        sides = [(self._sweeps[0], self._out, candidate := [])]
        if flags.baseline_sweep:
            sides.append((self._sweeps[1], self._out / "baseline", baseline := []))
        for i in range(1, flags.confirm_passes + 1):
            for sweeps, out, passes in sides if i % 2 else reversed(sides):
                passes.append(sweeps.run(jobs, out / f"confirm-{i}", "--measure=time", "--quiet"))
        return (self._samples(baseline, set(cells)) if flags.baseline_sweep else None,
                self._samples(candidate, set(cells)))


# ---- The program


def _measure(text):
    what = text.split(",")
    if not set(what) <= {"memory", "time"}:
        raise argparse.ArgumentTypeError(f"'{text}' is not memory, time or memory,time")
    return what


def _count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 1000")
    return int(text)


def _parse(argv):
    parser = argparse.ArgumentParser(
        prog="regress", allow_abbrev=False,
        description="Compares with a baseline run: bytes and FLOPs exactly, time ratios to dense.",
        epilog="Exit codes: 0 no regression; 1 regression; 2 usage; 3 nothing comparable.")
    add = parser.add_argument
    add("--baseline", required=True, metavar="DIR", help="a run, or --out of an earlier regress")
    add("--candidate", metavar="DIR", help="compare this with it; run nothing")
    add("--measure", type=_measure, default=["memory", "time"], help="memory, time or both [both]")
    add("--filter", default="", metavar="GLOB", help="only cells whose name matches")
    add("--passes", type=_count, default=5, metavar="N", help="over all cells, for time [5]")
    add("--confirm-passes", type=_count, default=20, metavar="N",
        help="over suspicious cells, before they are called [20]")
    add("--sweep", metavar="PROGRAM", help="to run the cells with [//benchmarks:sweep]")
    add("--baseline-sweep", metavar="PROGRAM",
        help="the baseline's sweep program: its times are taken anew, in turns")
    add("--allow-other-machine", action="store_true", help="compare modelled bytes and FLOPs alone")
    add("--out", metavar="DIR", help="for the passes and the reports [results/runs/regress-<time>]")
    add("--quiet", action="store_true", help="no progress of the sweeps")
    flags = parser.parse_args(argv)
    if flags.candidate and (flags.sweep or flags.baseline_sweep):
        parser.error("--candidate runs nothing; leave out --sweep and --baseline-sweep")
    return flags


def _out(flags):
    if flags.out:
        return merge.user_path(flags.out)
    now = datetime.datetime.now(datetime.timezone.utc)
    return pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "results", "runs",
                        f"regress-{now:%Y%m%dT%H%M%SZ}").resolve()


def run(flags, command):
    """Compares and writes the reports; returns the exit code. Raises Stop."""
    out = _out(flags)
    if any(out.glob("pass-*")) or (out / "results.csv").exists():
        raise Stop(_USAGE, f"--out: {out} already holds a run; name another directory.")
    comparison = Comparison(flags, command, out)
    findings = comparison.findings()
    # Its own cells are all there, unless the code lost some.
    regressing = exact.REGRESSIONS + (() if flags.candidate else ("gone",))
    regressed = {f.cell for f in findings if f.verdict in regressing}
    code = _REGRESSION if regressed else _OK
    sides = (flags.baseline, comparison.candidate_name)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (
            ("regress.md", verdicts.markdown(findings, comparison.notes, sides, bool(regressed))),
            ("regress.xml", verdicts.junit(findings, regressing)),
            ("regress.json", verdicts.as_json(findings, comparison.notes, sides,
                                              {"exit_code": code}))):
        (out / name).write_text(text, encoding="utf-8")
    print(verdicts.terminal(findings, comparison.notes))
    print(f"Regression in {len(regressed)} cell{'' if len(regressed) == 1 else 's'}."
          if regressed else "No regression.")
    print(out)
    return code


def main(argv):
    flags = _parse(argv)
    try:
        return run(flags, shlex.join(["bazel", "run", "//benchmarks:regress", "--", *argv]))
    except Stop as stop:
        print(f"regress: {stop}", file=sys.stderr)
        return stop.code
    except results_lib.SchemaError as error:
        print(f"regress: {error}", file=sys.stderr)
        return _NOTHING
    except (results_lib.ResultsError, merge.MergeError) as error:
        print(f"regress: {error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"regress: {error.filename} could not be read or written: {error.strerror}.",
              file=sys.stderr)
        return _WRITE
    except KeyboardInterrupt:
        print("regress: stopped; the passes that are finished are kept.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
