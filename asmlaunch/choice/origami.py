"""AMD's Origami (ROCm rocm-libraries, shared/origami), where its Python module is installed.

Used as its README shows: a problem, a hardware description and configurations go in, configurations with a predicted
latency come out. Tested against a module of that shape, not against Origami itself, which no package registry carries.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from asmlaunch.choice.candidates import Candidate
from asmlaunch.choice.machine import Machine
from asmlaunch.errors import KernelNotFoundError

_INSTRUCTION = (16, 16, 128)  # V_MFMA_SCALE_F32_16X16X128_F8F6F4, the kernels' matrix instruction
_STEP = 256
_MX_BLOCK = 32


def scores(candidates: Sequence[Candidate], m: int, n: int, k: int, machine: Machine) -> list[tuple[float, ...]]:
    """Origami's latency of each candidate, in its own unit.

    Raises:
        KernelNotFoundError: Origami is not installed.
    """
    try:
        origami = importlib.import_module("origami")
    except ImportError as error:
        raise KernelNotFoundError(
            "selector 'origami': its Python module is not installed",
            hint="build rocm-libraries' shared/origami/python, or use selector='analytical'",
        ) from error
    hardware = origami.get_hardware_for_arch(
        origami.architecture_t.gfx950,
        machine.units,
        160 << 10,
        512 << 10,
        4 << 20,
        round(machine.clock / 1e3),
    )
    problem = _problem(origami, m, n, k)
    return [(_latency(origami, problem, hardware, candidate),) for candidate in candidates]


def _problem(origami: ModuleType, m: int, n: int, k: int) -> Any:
    problem = origami.problem_t()
    problem.size = origami.dim3_t(m, n, k)
    problem.batch = 1
    problem.a_transpose, problem.b_transpose = origami.transpose_t.T, origami.transpose_t.N
    fp4, bf16 = origami.string_to_datatype("f4"), origami.string_to_datatype("bf16")
    problem.a_dtype = problem.b_dtype = problem.mi_dtype = fp4
    problem.c_dtype = problem.d_dtype = bf16
    problem.a_mx_block_size = problem.b_mx_block_size = _MX_BLOCK
    return problem


def _latency(origami: ModuleType, problem: Any, hardware: Any, candidate: Candidate) -> float:
    config = origami.config_t()
    config.mt = origami.dim3_t(candidate.tile_m, candidate.tile_n, _STEP)
    config.mi = origami.dim3_t(*_INSTRUCTION)
    config.occupancy = 1  # 160 KiB of LDS: one workgroup a unit
    return float(origami.select_config(problem, hardware, [config]).latency)
