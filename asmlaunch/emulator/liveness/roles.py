"""What a compute instruction reads and writes: from its definition's signature, else from the table below.

The assembler writes destinations first. The table states what departs from "one destination, then sources": how many
destinations, whether the destination's old value survives in part, and the machine state touched besides. Source: AMD
CDNA3 and CDNA4 ISA manuals, the opcode tables of each encoding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from asmlaunch.emulator.decode import Instruction
from asmlaunch.emulator.flow import EXEC_PLACE, SCC_PLACE, state_places
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.table import Compute, find, is_implicit
from asmlaunch.emulator.liveness.registers import EXEC, M0, SCC, VCC


@dataclass(frozen=True)
class Roles:
    """The shape of a compute instruction.

    Attributes:
        outputs: leading operands that are written.
        keeps: whether a written register still depends on its old value.
        reads, writes: machine state beside the operands, as register numbers.
        lanes: whether EXEC selects the lanes that a vector destination is written in.
    """

    outputs: int = 1
    keeps: bool = False
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    lanes: bool = True


_BOTH_EXEC = (EXEC, EXEC + 1)
_PLACES = {SCC_PLACE: (SCC,), EXEC_PLACE: _BOTH_EXEC}

#: First match counts; the pattern is matched against the whole mnemonic.
TABLE: tuple[tuple[str, Roles], ...] = (
    # No result: comparisons set SCC alone; the rest steers the wave (see ``effects`` for what they use).
    (r"s_cmp(k)?_.*|s_bitcmp[01]_.*", Roles(0, writes=(SCC,))),
    (r"s_(nop|sleep|waitcnt.*|barrier|setprio|endpgm.*|icache_inv|sethalt|trap|incperflevel|decperflevel|ttracedata"
     r"|setkill|wakeup|clause|code_end|inst_prefetch|set_gpr_idx_off|set_gpr_idx_mode)|v_nop|v_clrexcp", Roles(0)),
    (r"s_(setreg_.*|setvskip|sendmsg|sendmsghalt|setpc_b64|rfe_.*|set_gpr_idx_on|set_gpr_idx_idx|c?branch.*)",
     Roles(0)),
    # Scalar.
    (r"s_.*_saveexec_b64|s_.*_wrexec_b64", Roles(reads=_BOTH_EXEC, writes=(SCC, *_BOTH_EXEC))),
    (r"s_(addc|subb)_u32", Roles(reads=(SCC,), writes=(SCC,))),
    (r"s_cselect_.*", Roles(reads=(SCC,))),
    (r"s_cmovk?_.*", Roles(keeps=True, reads=(SCC,))),
    (r"s_addk_i32", Roles(keeps=True, writes=(SCC,))),
    (r"s_(mulk_i32|bitset[01]_.*)", Roles(keeps=True)),
    (r"s_(mov|movk|mul|mul_hi|bfm|pack_.*|sext|ff[01]|flbit|brev|bitreplicate|getreg|getpc|swappc|call|memtime"
     r"|memrealtime|rfe)(_.*)?", Roles()),
    (r"s_movrel[sd]_.*", Roles(reads=(M0,))),
    (r"s_.*", Roles(writes=(SCC,))),
    # Vector.
    (r"v_cmpx_.*", Roles(writes=_BOTH_EXEC)),
    (r"v_(add|sub|subrev|addc|subb|subbrev)_co_u32|v_div_scale_.*|v_mad_[ui]64_[ui]32", Roles(2)),
    (r"v_div_fmas_.*", Roles(reads=(VCC, VCC + 1))),
    (r"v_(swap_b32|permlane\d+_swap_b32)", Roles(2, keeps=True)),
    (r"v_writelane_b32", Roles(keeps=True, lanes=False)),
    (r"v_smfmac_.*", Roles(keeps=True, lanes=False)),
    (r"v_mfma_.*|v_readlane_b32|v_readfirstlane_b32", Roles(lanes=False)),
    (r"v_(pk_)?(fmac|mac|dot\d+c)_.*|v_(mad|fma)_mix(lo|hi)_.*|v_cvt_sr_.*|v_cvt_(scalef32_)?\w*_(fp8|bf8|fp4)_\w*f\d+"
     r"|v_cvt_scalef32_(sr_)?(f16|bf16)_.*", Roles(keeps=True)),
    # 16-bit results of these leave the other half of the register as it was.
    (r"v_(fma|mad|div_fixup|max3|min3|med3)_[fiu]16|v_(add|sub)_i16|v_bitop3_b16|v_ashr_pk_[iu]8_i32",
     Roles(keeps=True)),
    # Data moves between lanes that the LDS hardware does without touching LDS.
    (r"v_.*|ds_b?permute_b32|ds_bpermute_fi_b32|ds_swizzle_b32", Roles()),
)  # fmt: skip

_TABLE = tuple((re.compile(pattern), roles) for pattern, roles in TABLE)


def from_table(mnemonic: str) -> Roles | None:
    """The table's answer, or None for a mnemonic that no pattern matches (memory instructions)."""
    return next((roles for pattern, roles in _TABLE if pattern.fullmatch(mnemonic)), None)


def from_definition(mnemonic: str) -> Roles | None:
    """What the instruction's definition says, or None where there is none."""
    definition = find(mnemonic)
    if not isinstance(definition, Compute):
        return None
    reads = tuple(number for _, kind in definition.sources for number in _state(kind))
    if definition.unit != "salu":
        # Which lanes are on decides what a lane gets: control, and whoever wrote EXEC is reported for it.
        reads = tuple(number for number in reads if number not in _BOTH_EXEC)
    writes = tuple(number for kind in definition.results for number in _state(kind))
    outputs = sum(not is_implicit(kind) for kind in definition.results)
    keeps = definition.exchanges or bool(definition.half) or any(name == "d" for name, _ in definition.sources)
    return Roles(outputs, keeps, reads, writes, lanes=not definition.all_lanes)


def _state(kind: type[isa.Value]) -> tuple[int, ...]:
    """The registers behind a piece of machine state that a signature names."""
    return tuple(number for place in state_places(kind) for number in _PLACES.get(place, (place.number,)))


@cache
def _of(mnemonic: str) -> Roles | None:
    return from_definition(mnemonic) or from_table(mnemonic)


def roles(instruction: Instruction) -> Roles | None:
    """The roles of a compute instruction, its encoding and modifiers counted; None for memory instructions."""
    found = _of(instruction.mnemonic)
    if found is None or found.keeps or not _keeps_part(instruction):
        return found
    return Roles(found.outputs, True, found.reads, found.writes, found.lanes)


def _keeps_part(instruction: Instruction) -> bool:
    """Whether encoding or modifiers leave part of the destination, or some of its lanes, as they were."""
    if instruction.encoding in ("dpp", "e64_dpp"):
        return True  # lanes without a source
    modifiers = instruction.modifiers
    if instruction.encoding == "sdwa":
        return modifiers.get("dst_unused") == "UNUSED_PRESERVE"
    # The last element of op_sel of a 16-bit instruction selects the destination's half; packed ones write both.
    select = modifiers.get("op_sel", ())
    return len(select) >= max(1, len(instruction.operands)) and select[-1] == 1
