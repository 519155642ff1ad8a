"""Runs an experiment: the sweep with the experiment's preset, then tables, plots and report.

Some experiments are measured by another program than the sweep. Flags are the program's (--help);
--preset takes a name of the experiment's presets or a file. The exit code is the program's; the last
line printed is the results directory.
"""

import importlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys

from plotting import results

_HERE = pathlib.Path(__file__).parent
_PROGRAMS = _HERE.parent / "benchmarks"
_INVENTORY = _PROGRAMS / "inventory"
_PRESETS = _HERE / "presets"
_USAGE = 2


def _preset(experiment, value):
    """The file of a preset given by name or path; None if there is none."""
    presets = _PRESETS / experiment
    if (presets / f"{value}.flags").exists():
        return presets / f"{value}.flags"
    path = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), value)
    return path.resolve() if path.is_file() else None


def _preset_names(experiment):
    return ", ".join(sorted(path.stem for path in (_PRESETS / experiment).glob("*.flags")))


# What the BUILD file says of an experiment.
_DECLARED = ("--experiment", "--check", "--program", "--drawn-as")


def _split(arguments):
    """Takes what is declared, and --preset, out of the arguments."""
    taken, rest = {}, []
    arguments = list(arguments)
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if name in (*_DECLARED, "--preset"):
            taken[name] = value if equals else (arguments.pop(0) if arguments else "")
        else:
            rest.append(argument)
    return taken, rest


def _measure(program, arguments, command):
    """Runs the program and passes on what it prints; returns its exit code and its last line.

    `command` is what the user typed, for run.json.
    """
    # Ctrl-C reaches the program too, which stops in order; this process waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    last = ""
    environment = {**os.environ, "TTBENCH_COMMAND": command}
    with subprocess.Popen(
        [_PROGRAMS / program, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip()
    code = process.returncode
    return (code if code >= 0 else 128 - code), last


def main(argv):
    taken, arguments = _split(argv)
    experiment = taken["--experiment"]
    program = taken.get("--program", "sweep")
    if {"--help", "-h"} & set(arguments):
        print(f"//experiments:{experiment}: measures, then draws tables, plots and report; by default "
              f"--preset=default\nof {_preset_names(experiment)}. The flags are those of "
              f"//benchmarks:{program}:", flush=True)
    resumes = any(a.partition("=")[0] == "--resume" for a in arguments)
    if not resumes:
        name = taken.get("--preset", "default")
        preset = _preset(experiment, name)
        if preset is None:
            print(f"{experiment}: --preset: no preset is named '{name}' and no file; there are "
                  f"{_preset_names(experiment)}", file=sys.stderr)
            return _USAGE
        arguments = [f"--preset={preset}", f"--experiment={experiment}", *arguments]
    elif "--preset" in taken:
        print(f"{experiment}: --resume goes on with the run's own flags; leave out --preset",
              file=sys.stderr)
        return _USAGE

    declared = [f"{name}={taken[name]}" for name in _DECLARED if name in taken]
    typed = [a for a in argv if a not in declared]
    code, directory = _measure(
        program, arguments, shlex.join(["bazel", "run", f"//experiments:{experiment}", "--", *typed])
    )
    rows = "results.csv" if program == "sweep" else f"{program}.csv"
    if code not in (0, 1) or not pathlib.Path(directory, rows).is_file():
        return code  # --list, --help, or nothing that could be drawn.
    try:
        module = importlib.import_module("plotting." + taken.get("--drawn-as", experiment))
        if getattr(module, "INVENTORY", False):
            subprocess.run([_INVENTORY, directory], check=True)
        paths = module.draw_all(directory)
        if "--check" in taken:
            check = importlib.import_module("plotting." + taken["--check"])
            checked, words = check.check(directory)
            paths = checked + paths  # The report stays the last.
            print(words)
    except (results.ResultsError, OSError, subprocess.CalledProcessError) as error:
        print(f"{experiment}: the rows are written, the plots are not: {error}", file=sys.stderr)
        return code or 1
    print(f"{len(paths)} tables and plots; open {paths[-1]}")
    print(directory)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
