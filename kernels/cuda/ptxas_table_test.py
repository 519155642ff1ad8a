"""The committed table is what ptxas reports here, if it is the same ptxas; and it has no spills."""

import itertools
import os
import pathlib
import re
import subprocess

from kernels.cuda import ptxas_table

_TOOLKIT = "13.0"  # Whose table is committed.
_TABLE = pathlib.Path("kernels/cuda/ptxas.csv").read_text(encoding="utf-8")
_PLAN = pathlib.Path("kernels/cuda/fused_cuda_plan.h").read_text(encoding="utf-8")
_PANEL = pathlib.Path("kernels/cuda/panel_cuda_params.h").read_text(encoding="utf-8")

_REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN7ttbench9_GLOBAL_19FusedBackwardKernelILNS_13CudaPrecisionE1EEEvNS_1PE' for 'sm_90a'
ptxas info    : Function properties for _ZN7ttbench9_GLOBAL_19FusedBackwardKernelILNS_13CudaPrecisionE1EEEvNS_1PE
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 101 registers, used 1 barriers, 1024 bytes smem, 31184 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN7ttbench9_GLOBAL_15PackCoresKernelILNS_13CudaPrecisionE0EEEvNS_1PE' for 'sm_80'
ptxas info    : Function properties for _ZN7ttbench9_GLOBAL_15PackCoresKernelILNS_13CudaPrecisionE0EEEvNS_1PE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers, 31640 bytes cmem[0], 32 bytes cmem[2]
ptxas info    : Compiling entry function '_ZN7ttbench9_GLOBAL_15JoinCoresKernelENS_10PanelJoinsEPf' for 'sm_80'
ptxas info    : Function properties for _ZN7ttbench9_GLOBAL_15JoinCoresKernelENS_10PanelJoinsEPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 512 bytes cmem[0]
"""


def test_a_report_is_read():
    assert ptxas_table.parse(_REPORT) == [
        ptxas_table.Row("sm_80", "JoinCoresKernel", "float32", 40, 0, 0, 0, 0),
        ptxas_table.Row("sm_80", "PackCoresKernel", "float32", 28, 0, 0, 0, 0),
        ptxas_table.Row("sm_90a", "FusedBackwardKernel", "tf32", 101, 8, 12, 16, 1024)]


def test_a_table_is_read_as_it_was_written():
    rows = ptxas_table.parse(_REPORT)
    assert ptxas_table.read(ptxas_table.write(rows)) == rows


def test_no_kernel_spills_and_all_have_the_registers_that_plans_count_on():
    rows = ptxas_table.read(_TABLE)
    planned = {f"Fused{name}Kernel": int(count)
               for name, count in re.findall(r"kFusedCuda(\w+)Registers = (\d+)", _PLAN)}
    assert set(planned) == {"FusedForwardKernel", "FusedBackwardKernel"}
    panels = int(re.search(r"kPanelCudaRegisters = (\d+)", _PANEL)[1])
    planned |= {"PanelMultiplyKernel": panels, "PanelGradientKernel": panels}
    kernels = {*planned, "PackCoresKernel", "SumGradientsKernel", "WidenCoresKernel",
               "PackPanelsKernel", "NarrowGradientsKernel"}
    in_float32 = {"JoinCoresKernel", "JoinGradientsKernel", "SumPanelsKernel"}
    assert {(row.target, row.kernel, row.precision) for row in rows} == {
        (target, kernel, precision) for target in ("sm_80", "sm_90a")
        for kernel, precision in [*itertools.product(kernels, ptxas_table.PRECISIONS),
                                  *itertools.product(in_float32, ["float32"])]}
    for row in rows:
        assert row.spill_store_bytes == row.spill_load_bytes == 0, row
        assert row.registers <= planned.get(row.kernel, 255), row


def test_the_table_is_what_ptxas_reports():
    reports = os.environ.get("PTXAS_REPORTS", "").split()
    if not reports:
        return  # No toolkit: the table alone is tested.
    rows = sorted(row for path in reports
                  for row in ptxas_table.parse(pathlib.Path(path).read_text(encoding="utf-8")))
    assert not any(row.spill_store_bytes or row.spill_load_bytes for row in rows)
    version = subprocess.run([os.environ["NVCC"], "--version"], capture_output=True, text=True,
                             check=True).stdout
    if f"release {_TOOLKIT}," in version:
        assert ptxas_table.write(rows) == _TABLE, (
            "bazel run //kernels/cuda:ptxas_table -- $PWD/bazel-bin/kernels/cuda/_objs/"
            "fused_cuda_objects/*.ptxas > kernels/cuda/ptxas.csv")
