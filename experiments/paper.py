"""Measures every claim, or redraws all of it from committed runs: one report with verdicts.

Runs the project's experiments one after another, each into a directory of its own, then writes the
claims report beside them. An experiment that fails leaves its claims unmeasured; the others go on.
Exit codes: 0 all ran; 1 one of them failed or found cells that failed; 2 usage.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from plotting import paper, results

_HERE = pathlib.Path(__file__).parent
_PRESETS = ("quick", "default")
_NAMES = tuple(e.name for e in paper.EXPERIMENTS)
_SWEEPS = ("crossover", "attention", "transformer_xl")  # They can go on with a stopped run.
# What `bazel run` gives those that experiment() declares, as BUILD says it.
_DECLARED = {**{name: (f"--experiment={name}",) for name in _SWEEPS},
             **{name: (f"--experiment={name}", f"--program={name}")
                for name in ("copies", "replicas")}}
_USAGE = 2


def _names(text):
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in _NAMES:
            raise argparse.ArgumentTypeError(
                f"no experiment is named {name!r}; there are {', '.join(_NAMES)}")
    return names


def _flags(argv):
    parser = argparse.ArgumentParser(
        prog="paper", description=__doc__.split("\n")[0], allow_abbrev=False,
        epilog="A finished experiment of --out is not run again, so that a stopped run goes on "
               "where it was.")
    parser.add_argument("--weights", help=argparse.SUPPRESS)  # Of the trained network, from BUILD.
    parser.add_argument("--preset", choices=_PRESETS, default="default",
                        help="quick: all claims in under 10 minutes on two cores; default: the "
                        "committed sizes, about half an hour")
    parser.add_argument("--from", dest="source", metavar="DIR",
                        help="measure nothing: draw the runs that DIR holds, such as "
                        "results/reference")
    parser.add_argument("--only", type=_names, default=_NAMES, metavar="NAME,...",
                        help=f"of {', '.join(_NAMES)}")
    parser.add_argument("--out", metavar="DIR",
                        help="where to write (default: results/runs/paper-<UTC time>)")
    flags = parser.parse_args(argv)
    if flags.source and flags.only != _NAMES:
        parser.error("--from draws all that its directory holds; leave out --only")
    return flags


def _out(flags, now):
    if flags.out:
        return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), flags.out).absolute()
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
    return pathlib.Path(workspace, "results", "runs", f"paper-{now:%Y%m%dT%H%M%SZ}").absolute()


def _finished(directory):
    try:
        run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(run.get("finished_utc"))


def _command(name, flags, out):
    """What runs one experiment into out/name, or goes on with it there."""
    directory = out / name
    command = [_HERE / name, *_DECLARED.get(name, ())]
    if name == "real_weights":
        command.append(f"--weights={flags.weights}")
    if (directory / "run.json").exists():
        if name in _SWEEPS:
            return [*command, f"--resume={directory}"]
        aside = out / f"{name}-stopped-{time.time_ns()}"
        directory.rename(aside)
        print(f"paper: what the stopped run of {name} had is now in {aside}", flush=True)
    return [*command, f"--preset={flags.preset}", f"--out={directory}"]


def _run(command):
    # Ctrl-C reaches the experiment too, which stops in order.
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
    return code if code >= 0 else 128 - code


def _measure(flags, out):
    """Runs what is not finished; returns the worst exit code, or that of an interrupt at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worst, begun = 0, time.monotonic()
    for i, name in enumerate(flags.only):
        about = f"[{i + 1}/{len(flags.only)}] {name}"
        if _finished(out / name):
            print(f"{about}: finished before", flush=True)
            continue
        print(f"{about}, preset {flags.preset}, after {time.monotonic() - begun:.0f} s", flush=True)
        code = _run(_command(name, flags, out))
        if code >= 128:
            return code
        if code:
            print(f"paper: {name} ended with exit code {code}; the others go on", file=sys.stderr)
        worst = max(worst, min(code, 1))
    return worst


def main(argv):
    try:
        flags = _flags(argv)
    except SystemExit as stop:
        return stop.code
    out = _out(flags, datetime.datetime.now(datetime.timezone.utc))
    code = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        if flags.source:
            source = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), flags.source)
            paths = paper.draw_all(source, str(out))
        else:
            code = _measure(flags, out)
            if code >= 128:
                print(f"paper: stopped; --out={out} goes on with it", file=sys.stderr)
                return code
            paths = paper.draw_all(str(out), drawn=True)
    except results.ResultsError as error:
        print(f"paper: {error}", file=sys.stderr)
        return code or _USAGE
    except OSError as error:
        print(f"paper: {error.filename or out} could not be read or written: {error.strerror}.",
              file=sys.stderr)
        return code or 1
    print(f"{len(paths)} files; open {paths[-1]}")
    print(out)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
