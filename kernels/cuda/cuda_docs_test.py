"""The tables of docs/cuda.md are what the program prints, and its figures those of the sources."""

import pathlib
import re
import subprocess

_PAGE = pathlib.Path("docs/cuda.md").read_text(encoding="utf-8")
_DEVICES = pathlib.Path("kernels/cuda/cuda_device.cc").read_text(encoding="utf-8")
_MARK = "<!-- The tables: printed by //kernels/cuda:fused_cuda_roofline. -->\n"


def test_the_tables_are_what_the_program_prints():
    done = subprocess.run(["kernels/cuda/fused_cuda_roofline"], capture_output=True, text=True,
                          check=True)
    text, tables = _PAGE.split(_MARK)
    assert tables == done.stdout, (
        "put what bazel run //kernels/cuda:fused_cuda_roofline prints below the mark of docs/cuda.md")
    # Three devices, two passes, two kernels.
    assert len(re.findall(r"^\*\*", tables, re.MULTILINE)) == 12


def test_the_published_figures_are_those_the_model_uses():
    for name, row in (("float32_flops", 0), ("tf32_flops", 1), ("bfloat16_flops", 2)):
        printed = [cell.strip().split(", ")[row]
                   for cell in re.search(r"^\| float32, TF32, bfloat16, TFLOP/s \|(.*)\|$", _PAGE,
                                         re.MULTILINE)[1].split("|")]
        used = re.findall(rf"device\.{name} = ([\d.]+)e12;", _DEVICES)
        assert printed == used + used[-1:]  # The H200 computes as the H100 does.
    printed = [float(cell) for cell in
               re.search(r"^\| memory, TB/s \|(.*)\|$", _PAGE, re.MULTILINE)[1].split("|")]
    used = re.findall(r"device\.memory_bytes_per_s = ([\d.]+)e12;", _DEVICES)
    assert printed == [round(float(figure), 2) for figure in used]
