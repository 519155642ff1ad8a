"""What TT-SVD makes of trained weights: `bazel run //experiments:real_weights`.

Compresses the feed-forward matrices of a small transformer (networks/minilm) at many ranks and
measures the error of each matrix, that of the sentence embeddings, and bytes and time of the whole
encoder per variant; then draws figures, tables and report. --preset takes quick or default, --out a
directory; other flags are those in the preset files, and override them.
"""

import datetime
import os
import pathlib
import shlex
import signal
import subprocess
import sys

from plotting import real_weights
from plotting import results

_HERE = pathlib.Path(__file__).parent
_MINILM = _HERE.parent / "networks" / "minilm"
_MEASURE = _HERE / "real_weights_measure"
_PRESETS = _HERE / "presets" / "real_weights"
_USAGE, _CANNOT_WRITE = 2, 4


def _preset_flags(name):
    """The flags of a preset; raises ValueError."""
    path = _PRESETS / f"{name}.flags"
    names = ", ".join(sorted(p.stem for p in _PRESETS.glob("*.flags")))
    if "/" in name or not path.is_file():
        raise ValueError(f"--preset: no preset is named '{name}'; there are {names}")
    return shlex.split(path.read_text(encoding="utf-8"), comments=True)


def _split(arguments):
    """(preset, directory or None, the other flags)."""
    taken, rest = {"--preset": "default", "--out": None, "--weights": None}, []
    arguments = list(arguments)
    while arguments:
        name, equals, value = arguments.pop(0).partition("=")
        if name not in taken:
            rest.append(name + equals + value)
        elif not equals and not arguments:
            raise ValueError(f"{name}: what is missing; write {name}=..")
        else:
            taken[name] = value if equals else arguments.pop(0)
    return taken["--preset"], taken["--out"], taken["--weights"], rest


def _directory(out):
    if out:
        return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), out).absolute()
    now = datetime.datetime.now(datetime.timezone.utc)
    return pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "results", "runs",
                        f"real_weights-{now:%Y%m%dT%H%M%SZ}").absolute()


def _measure(flags, command):
    # Ctrl-C reaches the program too, which stops in order; this process waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment = {**os.environ, "TTBENCH_COMMAND": command}
    with subprocess.Popen([_MEASURE, *flags], env=environment) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        code = process.wait()
    return code if code >= 0 else 128 - code


def main(argv):
    try:
        preset, out, weights, rest = _split(argv)
        if {"--help", "-h"} & set(rest):
            print(__doc__)
            return 0
        directory = _directory(out)
        if (directory / "run.json").exists():
            raise ValueError(f"--out: {directory} already holds a run; name another directory")
        flags = [f"--weights={weights}", f"--sentences-file={_MINILM / 'verses.safetensors'}",
                 f"--published={_MINILM / 'published.safetensors'}", f"--out={directory}",
                 *_preset_flags(preset), *rest]
        directory.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        print(f"real_weights: {error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"real_weights: cannot write into {error.filename}: {error.strerror}",
              file=sys.stderr)
        return _CANNOT_WRITE
    typed = [a for a in argv if not a.startswith("--weights=")]
    code = _measure(flags, shlex.join(["bazel", "run", "//experiments:real_weights", "--", *typed]))
    if code == _USAGE and not any(directory.iterdir()):
        directory.rmdir()
    if code not in (0, 1):
        return code
    try:
        paths = real_weights.draw_all(directory)
    except (results.ResultsError, OSError) as error:
        print(f"real_weights: the rows are written, the plots are not: {error}", file=sys.stderr)
        return code or 1
    print(f"{len(paths)} tables and plots; open {paths[-1]}")
    print(directory)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
