"""Begins a variant: `bazel run //kernels:new_variant -- --name=my-variant`.

Writes kernels/linear/my_variant.cc, which computes the layer rightly but has next to no cost model,
and its line in the BUILD file; or, with --package=DIR, the same into a package of one's own.
docs/adding-a-variant.md says how it goes on.
"""

import argparse
import os
import pathlib
import re
import sys

_USAGE = 2

SKELETON = """\
// {name}: say here what it does, and what it is better at.
#include <ATen/ops/mm.h>

#include "kernels/variant.h"

namespace ttbench {{
namespace {{

class {class_name} : public LinearVariant {{
 public:
  std::string name() const override {{ return "{name}"; }}
  std::string Algorithm(const LinearProblem&) const override {{
    return "last core to first, permute and mm";
  }}
  // The reason where it cannot run a problem: "written for two cores".
  std::string WhyUnsupported(const LinearProblem&) const override {{ return ""; }}
  // Whether `auto` may pick it: delete this line when all tests pass.
  bool is_trusted() const override {{ return false; }}

  // y [B, M] of x [B, N] and the cores [r_{{k-1}}, n_k, m_k, r_k]. Right for every shape: a start,
  // until yours is here.
  at::Tensor Forward(const TtShape& s, const at::Tensor& x, at::TensorList cores) const override {{
    int64_t left = x.numel(), right = 1;  // B n_1 .. n_{{k-1}} and m_{{k+1}} .. m_K
    at::Tensor t = x;
    for (int64_t k = s.cores() - 1; k >= 0; --k) {{
      const int64_t n = s.n(k), m = s.m(k), l = s.left_rank(k), r = s.right_rank(k);
      left /= n;
      t = t.reshape({{left, n, r, right}}).permute({{0, 3, 1, 2}}).reshape({{left * right, n * r}});
      t = at::mm(t, cores[k].permute({{1, 3, 0, 2}}).reshape({{n * r, l * m}}));
      t = t.view({{left, right, l, m}}).permute({{0, 2, 3, 1}});
      right *= m;
    }}
    return t.reshape({{x.size(0), s.out_features()}});
  }}

  // The cost model: Forward() once more, in the operators of kernels/cost/tape.h, every buffer with
  // a name. So far it knows y alone; the test of its bytes shows what is missing.
  cost::Tensor Trace(cost::Tape& tape, const TtShape& s, const cost::Tensor& x,
                     const std::vector<cost::Tensor>&) const override {{
    return tape.Empty("y", {{x.size(0), s.out_features()}});
  }}
}};

const RegisterLinearVariant k{class_name}({wrap}std::make_unique<{class_name}>());

}}  // namespace
}}  // namespace ttbench
"""

PACKAGE_BUILD = """\
load("@ttbench//benchmarks:defs.bzl", "ttbench_sweep")

# The sweep with these variants, and sweep_test, which checks them.
ttbench_sweep(
    name = "sweep",
    variants = [
    ],
)
"""

PACKAGE_WORKSPACE = """\
workspace(name = "{workspace}")

local_repository(
    name = "ttbench",
    path = "{ttbench}",
)

load("@ttbench//tools:workspace.bzl", "ttbench_dependencies")

ttbench_dependencies()
"""

PACKAGE_BAZELRC = """\
# The compiler's flags and Bazel's, as in the suite itself.
import {ttbench}/.bazelrc
"""

_IN_REPOSITORY = """\
wrote {written}
Next, from the repository:
  ./bazelw test //kernels/linear:variants_test --test_filter='*/{stem}'      # right results?
  ./bazelw test //benchmarks:memory_model_test --test_filter='*/{stem}'      # right bytes?
  ./bazelw run //benchmarks:sweep -- --variant='dense*,{name}' --d=16 --batch=1:4096:x8
The second fails until Trace() names every buffer, and shows which are missing."""

_IN_PACKAGE = """\
wrote {written}
Next, in {directory}:
  {bazel} test :sweep_test --test_filter='*VariantTest*/{stem}'    # right results?
  {bazel} test :sweep_test                         # fails until Trace() names every buffer
  {bazel} run :sweep -- --variant='dense*,{name}' --d=16 --batch=1:4096:x8"""


class Refusal(Exception):
    """Nothing was written; the message says what to do."""


def names_in(source):
    """Names of the variants that a file declares or registers."""
    bodies = re.findall(r"std::string name\(\) const override \{.*?\}", source, re.DOTALL)
    constants = re.findall(r"constexpr const char\* k\w*Variant = .*", source)
    arguments = re.findall(r"RegisterLinearVariant \w+\(\s*std::make_unique<\w+>\([^;]*", source)
    return re.findall(r'"([^"]+)"', "\n".join(bodies + constants + arguments))


def check_name(name):
    if not name:
        raise Refusal("--name: give one, as in --name=my-variant")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise Refusal(f"--name: '{name}' is no variant's name; write lower-case words and digits "
                      "joined by single hyphens, beginning with a letter, as in my-variant")


def skeleton(name):
    class_name = "".join(word.capitalize() for word in name.split("-"))
    # As clang-format has it at 100 columns.
    wrap = "\n    " if len(class_name) > 24 else ""
    return SKELETON.format(name=name, class_name=class_name, wrap=wrap)


def with_line(build, opening, entry, where):
    """The BUILD file's text with the entry in the list that begins with the line `opening`."""
    lines = build.splitlines()
    try:
        first = lines.index(opening) + 1
        last = next(i for i in range(first, len(lines)) if lines[i].strip() in ("]", "],"))
    except (ValueError, StopIteration):
        raise Refusal(f"{where} has no list that begins with '{opening.strip()}', one entry a line; "
                      f"write one, empty, and try again") from None
    indent = " " * (len(opening) - len(opening.lstrip()) + 4)
    entries = sorted([*lines[first:last], f'{indent}"{entry}",'])
    return "\n".join([*lines[:first], *entries, *lines[last:]]) + "\n"


def _refuse_taken(name, ttbench, others=()):
    folder = ttbench / "kernels" / "linear"
    for path in [ttbench / "kernels" / "variant.h", *sorted(folder.glob("*.h")),
                 *sorted(folder.glob("*.cc")), *sorted(others)]:
        if name in names_in(path.read_text(encoding="utf-8")):
            raise Refusal(f"--name: a variant named '{name}' is in {path} already; "
                          "choose another name")


def _write(files):
    """{path: text}; folders are made as needed."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def add_to_repository(name, workspace):
    """Writes the file and its BUILD line; returns the words to print."""
    stem = name.replace("-", "_")
    folder = workspace / "kernels" / "linear"
    _refuse_taken(name, workspace)
    source, build = folder / f"{stem}.cc", folder / "BUILD"
    text = build.read_text(encoding="utf-8")
    if source.exists() or f'"{stem}"' in text:
        raise Refusal(f"--name: kernels/linear has a file or target {stem} already; "
                      "choose another name")
    text = with_line(text, "VARIANTS = [", stem, "kernels/linear/BUILD")
    _write({source: skeleton(name), build: text})
    return _IN_REPOSITORY.format(name=name, stem=stem, written=f"{source} and its line in {build}")


def _workspace_of(directory):
    """The workspace that a package lies in, or None."""
    for folder in (directory, *directory.parents):
        if _workspace_file(folder).exists():
            return folder
    return None


def _workspace_file(folder):
    official = folder / "WORKSPACE.bazel"  # Counts before the other.
    return official if official.exists() else folder / "WORKSPACE"


def add_to_package(name, directory, ttbench):
    """Writes the file into a package of one's own, and what of the package is missing."""
    stem = name.replace("-", "_")
    source, build = directory / f"{stem}.cc", directory / "BUILD"
    _refuse_taken(name, ttbench, directory.glob("*.cc"))
    if source.exists():
        raise Refusal(f"{source} is there already; choose another name, or remove it")
    if (directory / "BUILD.bazel").exists():
        build = directory / "BUILD.bazel"
    text = build.read_text(encoding="utf-8") if build.exists() else PACKAGE_BUILD
    files = {source: skeleton(name),
             build: with_line(text, "    variants = [", f"{stem}.cc", build)}
    workspace, advice = _workspace_of(directory), ""
    if workspace is None:
        workspace = directory
        plain = re.sub(r"\W", "_", directory.name)
        files[directory / "WORKSPACE"] = PACKAGE_WORKSPACE.format(
            workspace=plain if plain[:1].isalpha() else "variants", ttbench=ttbench)
        if not (directory / ".bazelrc").exists():
            files[directory / ".bazelrc"] = PACKAGE_BAZELRC.format(ttbench=ttbench)
    elif workspace != ttbench and "@ttbench//" not in _workspace_file(workspace).read_text(
            encoding="utf-8"):
        advice = ("\nFirst, let the workspace know the suite: add to "
                  f"{_workspace_file(workspace)}\n\n" + PACKAGE_WORKSPACE.partition("\n\n")[2].format(
                      ttbench=ttbench) +
                  f"\nand to its .bazelrc\n\n  import {ttbench}/.bazelrc")
    _write(files)
    return _IN_PACKAGE.format(
        name=name, stem=stem, directory=directory,
        bazel="./bazelw" if (workspace / "bazelw").exists() else "bazel",
        written=", ".join(str(path) for path in files)) + advice


def main(argv):
    parser = argparse.ArgumentParser(prog="new_variant", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="", help="as in --variant: words joined by hyphens")
    parser.add_argument("--package", help="directory of a package of your own, in the repository or "
                        "not, made if missing (default: kernels/linear)")
    flags = parser.parse_args(argv)
    # `bazel run` starts it elsewhere than where the user stands.
    workspace = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", os.getcwd()))
    stands = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", os.getcwd()))
    try:
        check_name(flags.name)
        if flags.package:
            print(add_to_package(flags.name, (stands / flags.package).resolve(), workspace))
        else:
            print(add_to_repository(flags.name, workspace))
    except Refusal as refusal:
        print(f"new_variant: {refusal}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"new_variant: {error.filename} could not be read or written: "
              f"{error.strerror}",
              file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
