"""Runs //experiments:fused from end to end on its smallest layers.

Memory alone: the time of a cell with two threads depends on what else the machine does.
"""

import pathlib
import subprocess
import sys

import pytest

_FUSED = (pathlib.Path(__file__).parent / "fused", "--experiment=fused", "--check=targets",
          "--drawn-as=crossover")


def test_the_figures_are_printed_and_written(tmp_path):
    out = tmp_path / "run"
    done = subprocess.run(
        [*_FUSED, "--preset=smoke", "--batch=1,64",
         "--rank=2", "--variant=dense,fused*,sequential", "--measure=memory",
         f"--out={out}", "--quiet"],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fused: training peak over dense's" in done.stdout
    assert done.stdout.splitlines()[-1] == str(out)
    targets = (out / "tables" / "targets.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in targets.splitlines() if "fused: " in line]
    verdicts = {row[0].lstrip("| "): row[3] for row in rows}
    for figure in ("fused: training peak over dense's", "fused: inference peak over dense's",
                   "fused: measured bytes less the cost model's",
                   "fused: rise of the scratch per row of x"):
        assert verdicts[figure] == "met", figure
    assert (out / "report.html").is_file()


def test_help_names_the_presets_and_groups_the_flags():
    done = subprocess.run([*_FUSED, "--help"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 42 and max(map(len, lines)) <= 100
    assert "default, smoke" in done.stdout
    for group in ("What to run", "How to measure", "Where results go"):
        assert any(line.startswith(group) for line in lines), group


def test_the_default_preset_has_a_plan():
    done = subprocess.run([*_FUSED, "--list"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for cell in ("linear/merged/8x8x8:8x8x8/r2/b1/train/float32/cpu/t2",
                 "linear/dense-onednn/16x16x16:16x16x16/b512/inference/float32/cpu/t2",
                 "linear/fused/16x16x16:16x16x16/r8/b512/train/float32/cpu/t1"):
        assert cell in done.stdout, cell
    assert "linear/naive/16x16x16:16x16x16/r8/b512/train/float32/cpu/t1" not in done.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
