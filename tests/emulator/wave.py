"""Single instructions on chosen registers: many cases in one kernel, each with its results stored on the spot.

Registers of a case: sources in v[2:3], v[4:5], v[6:7] and s[8:9], s[10:11], s[12:13]; a mask in s[16:17], which is VCC
too. Destinations are v10..v12 and s[20:21]; they hold v8, v9, 0 and s[14:15] before the instruction. SCC is s30 != 0,
EXEC is s[18:19].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from emulator.toolkit import build
from numpy.typing import NDArray

LANES = 64
_STRIDE = 1024

_BEFORE = """
    v_mov_b32 v10, v8
    v_mov_b32 v11, v9
    v_mov_b32 v12, 0
    s_mov_b64 s[20:21], s[14:15]
    s_mov_b64 vcc, s[16:17]
    s_cmp_lg_u32 s30, 0
    s_mov_b64 exec, {exec}
"""
_AFTER = """
    s_cselect_b32 s22, 1, 0
    s_mov_b32 s23, m0
    s_mov_b64 s[24:25], exec
    s_mov_b64 s[26:27], vcc
    s_mov_b64 exec, -1
    global_store_dword v255, v10, s[96:97]
    global_store_dword v255, v11, s[96:97] offset:256
    global_store_dword v255, v12, s[96:97] offset:512
    s_store_dwordx4 s[20:23], s[96:97], 0x300
    s_store_dwordx4 s[24:27], s[96:97], 0x310
    s_waitcnt lgkmcnt(0) vmcnt(0)
    s_add_u32 s96, s96, 0x400
    s_addc_u32 s97, s97, 0
"""


@dataclass(frozen=True)
class Result:
    """What one case left: v10, v11, v12 as 64 dwords each, s[20:21], SCC, M0, EXEC and VCC."""

    vgprs: NDArray[np.uint32]
    sdst: int
    scc: int
    m0: int
    exec: int
    vcc: int

    @property
    def wide(self) -> NDArray[np.uint64]:
        """v[10:11] as 64 numbers of 64 bits."""
        return self.vgprs[0].astype(np.uint64) | self.vgprs[1].astype(np.uint64) << np.uint64(32)


class Wave:
    """A kernel of cases; ``run`` gives it registers.

    Args:
        cases: the instructions of each case; several lines are allowed.
        full: EXEC is all ones, and the compiler knows it.
        setup: instructions before the first case.
        options: of ``toolkit.source``.
    """

    def __init__(
        self, cases: Sequence[str], *, full: bool = False, processor: str = "gfx950", setup: str = "", **options: Any
    ) -> None:
        self._count = len(cases)
        before = _BEFORE.format(exec="-1" if full else "s[18:19]")
        body = "\n".join(f"{before}\n    {case}\n{_AFTER}" for case in cases)
        load = "\n".join(
            f"    global_load_dword v{number}, v255, s[94:95] offset:{256 * (number - 2)}" for number in range(2, 10)
        )
        start = f"""
    s_load_dwordx4 s[92:95], s[0:1], 0x0
    v_lshlrev_b32 v255, 2, v0
    s_waitcnt lgkmcnt(0)
{load}
    s_load_dwordx8 s[8:15], s[94:95], 0x800
    s_load_dwordx4 s[16:19], s[94:95], 0x820
    s_load_dword s30, s[94:95], 0x830
    s_waitcnt lgkmcnt(0) vmcnt(0)
    s_mov_b64 s[96:97], s[92:93]
{setup}
"""
        self._kernel = build(
            start + body, "outputs:ptr inputs:ptr", processor=processor, vgprs=256, accum=256, sgprs=100, **options
        )

    def run(
        self, vgprs: Mapping[int, NDArray[Any]] | None = None, sgprs: Mapping[int, int] | None = None, **launch: Any
    ) -> list[Result]:
        """Results of all cases.

        Args:
            vgprs: v2..v9 as 64 dwords.
            sgprs: s8..s19 and s30; EXEC (s18, s19) is all ones unless given.
        """
        inputs = np.zeros(0x840 // 4, np.uint32)
        for number, values in (vgprs or {}).items():
            inputs[64 * (number - 2) : 64 * (number - 1)] = values
        scalars = {18: 0xFFFFFFFF, 19: 0xFFFFFFFF, **(sgprs or {})}
        for number, value in scalars.items():
            inputs[0x200 + (12 if number == 30 else number - 8)] = value & 0xFFFFFFFF
        outputs = np.zeros(self._count * _STRIDE // 4, np.uint32)
        self._kernel.launch({"outputs": outputs, "inputs": inputs}, grid=(1, 1, 1), block=(64, 1, 1), **launch)
        results = []
        for part in outputs.reshape(self._count, -1):
            words = [int(word) for word in part[0xC0:0xC8]]
            pairs = [words[n] | words[n + 1] << 32 for n in (0, 4, 6)]
            results.append(
                Result(part[:192].reshape(3, LANES).copy(), pairs[0], words[2], words[3], pairs[1], pairs[2])
            )
        return results
