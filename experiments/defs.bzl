"""Declares experiments."""

def experiment(name, presets = ["smoke", "default", "paper"]):
    """A sweep, its tables and its plots: `bazel run //experiments:<name>`.

    Args:
      name: of the experiment; its presets are the files experiments/presets/<name>/<preset>.flags.
      presets: the names of the presets; without --preset, `default` runs.
    """
    native.py_binary(
        name = name,
        srcs = ["run.py"],
        main = "run.py",
        args = ["--experiment=" + name],
        data = ["//benchmarks:sweep"] + ["presets/%s/%s.flags" % (name, preset) for preset in presets],
        deps = ["//plotting:crossover_lib"],
    )
