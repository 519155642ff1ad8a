"""Trains networks that differ in how their TT layers are computed, then draws and judges them.

The flags are those of //networks/training:train (--help), before them those of the preset; the last
line printed is the results directory.
"""

import datetime
import os
import pathlib
import shlex
import signal
import subprocess
import sys

from plotting import results
from plotting import training

_HERE = pathlib.Path(__file__).parent
_TRAIN = _HERE.parent / "networks" / "training" / "train"
_TEXT = _HERE.parent / "networks" / "text" / "kjv.txt"
_PRESETS = _HERE / "presets" / "training"
_FAILED, _USAGE, _WRITE = 1, 2, 4


class UsageError(Exception):
    """One sentence for the user."""


def preset_flags(name):
    """The flags of a preset given by name or path; `#` begins a comment."""
    path = _PRESETS / f"{name}.flags"
    if not path.exists():
        path = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), name)
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in _PRESETS.glob("*.flags")))
        raise UsageError(f"--preset: no preset is named '{name}' and no file; there are {names}")
    return shlex.split(path.read_text(encoding="utf-8"), comments=True)


def _split(arguments):
    """Takes --preset and --out out of the arguments; returns them and the rest."""
    taken, rest = {"--preset": "default", "--out": ""}, []
    arguments = list(arguments)
    while arguments:
        name, equals, value = arguments.pop(0).partition("=")
        if name not in taken:
            rest.append(name + equals + value)
            continue
        taken[name] = value if equals else (arguments.pop(0) if arguments else "")
        if not taken[name]:
            raise UsageError(f"{name}: there is no value; write it as in {name}=value")
    return taken["--preset"], taken["--out"], rest


def _directory(out):
    if out:
        directory = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), out)
    else:
        now = datetime.datetime.now(datetime.timezone.utc)
        directory = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "results", "runs",
                                 f"training-{now:%Y%m%dT%H%M%SZ}")
    if (directory / "run.json").exists():
        raise UsageError(f"--out: {directory} already holds a run; name another directory")
    return directory


def _train(arguments):
    """Runs the program; returns its exit code."""
    # Ctrl-C reaches it too; it stops in order, and this process waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen([_TRAIN, *arguments]) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
    return code if code >= 0 else 128 - code


def main(argv):
    if {"--help", "-h"} & set(argv):
        print("//experiments:training: --preset=quick, default or a file of flags; --out=DIR. Others:",
              flush=True)
        return subprocess.run([_TRAIN, "--help"], check=False).returncode
    try:
        preset, out, flags = _split(argv)
        flags = [*preset_flags(preset), *flags]
        directory = _directory(out)
        directory.mkdir(parents=True, exist_ok=True)
    except UsageError as error:
        print(f"training: {error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"training: cannot write into {error.filename or out}: {error.strerror}",
              file=sys.stderr)
        return _WRITE
    command = shlex.join(["bazel", "run", "//experiments:training", "--", *argv])
    code = _train([*flags, f"--text={_TEXT}", f"--out={directory}", f"--command={command}"])
    if not (directory / "steps.csv").is_file():
        return code  # Nothing to draw.
    try:
        paths = training.draw_all(str(directory))
        verdicts = training.judge(str(directory))
    except (results.ResultsError, OSError) as error:
        print(f"training: the rows are written, the plots are not: {error}", file=sys.stderr)
        return code or _FAILED
    for verdict in verdicts:
        print(f"{verdict.id} {verdict.verdict}: {verdict.evidence}")
    print(f"{len(paths)} tables and plots; open {paths[-1]}")
    print(directory)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
