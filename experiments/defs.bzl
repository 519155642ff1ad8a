"""Declares experiments."""

def experiment(
        name,
        presets = ["smoke", "default", "paper"],
        check = None,
        inventory = False,
        program = "sweep",
        drawn_as = None):
    """A sweep, its tables and its plots: `bazel run //experiments:<name>`.

    Args:
      name: of the experiment; its presets are the files experiments/presets/<name>/<preset>.flags.
      presets: the names of the presets; without --preset, `default` runs.
      check: a library of //plotting whose check(directory) writes tables of the run's own and returns
          their paths and what to print; it is called when all else is drawn.
      inventory: whether its figures say what the bytes are (benchmarks/inventory.cc); its module of
          plotting/ says so too.
      program: what measures, of //benchmarks: another one than the sweep writes <program>.csv.
      drawn_as: whose module of plotting/ draws it, if it has none of its own.
    """
    native.py_binary(
        name = name,
        srcs = ["run.py"],
        main = "run.py",
        args = ["--experiment=" + name] + (["--check=" + check] if check else []) +
               (["--program=" + program] if program != "sweep" else []) +
               (["--drawn-as=" + drawn_as] if drawn_as else []),
        data = ["//benchmarks:" + program] + (["//benchmarks:inventory"] if inventory else []) +
               ["presets/%s/%s.flags" % (name, preset) for preset in presets],
        deps = [
            "//plotting:%s_lib" % (drawn_as or name),
            "//plotting:results",
        ] + (["//plotting:" + check] if check else []),
    )
