"""A launch of a declared problem that can be repeated with other argument bytes and other operands.

What a kernel does wrong while it is probed (a fault, an endless loop) is an observation, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from asmlaunch.abi import bind, hidden_values, resolve
from asmlaunch.errors import (
    ArgumentError,
    AsmlaunchError,
    DeviceError,
    EmulationError,
    InstructionBudgetError,
    KernelNotFoundError,
    LaunchError,
    MemoryFaultError,
)
from asmlaunch.module import Kernel
from asmlaunch.validate.problems import DEFINITIONS, Case, Definition, Output, definition_of

if TYPE_CHECKING:
    from asmlaunch.abi import Buffer
    from asmlaunch.devices import LaunchResult

#: Wave-instructions a wave may execute while it is probed: a few hundred times what these problems need.
BUDGET = 5_000_000


@dataclass(frozen=True)
class Observation:
    """What one launch did.

    Attributes:
        outputs: the bytes of the written buffers, by argument, ``uint8``.
        error: what ended the launch early.
        findings: what the device noticed.
        instructions: wave-instructions executed; None where the device does not count.
        launched: all that the device says; None where it did not end as it should.
    """

    outputs: Mapping[str, np.ndarray]
    error: AsmlaunchError | None = None
    findings: tuple[str, ...] = ()
    instructions: int | None = None
    launched: LaunchResult | None = None

    @property
    def ended(self) -> str:
        """How it ended: ``""`` as it should, ``"endless"``, ``"out of bounds"`` or ``"error"``."""
        if self.error is None:
            return ""
        if isinstance(self.error, InstructionBudgetError):
            return "endless"
        return "out of bounds" if isinstance(self.error, MemoryFaultError) else "error"

    def same(self, other: Observation) -> bool:
        """Whether nothing that can be seen tells the two apart: outputs, findings, instructions, how it ended."""
        return (
            self.ended == other.ended
            and self.instructions == other.instructions
            and self.findings == other.findings
            and self.equal_outputs(other)
        )

    def equal_outputs(self, other: Observation) -> bool:
        """Whether every written buffer holds the same bytes."""
        return all(np.array_equal(self.outputs[name], other.outputs[name]) for name in self.outputs)


class Rig:
    """A kernel, a problem, and everything of its launch but the device's addresses.

    Attributes:
        kernel, definition, case: what is launched.
        problem: the problem; its arrays may be changed between runs.
        arrays: the operands by canonical argument name. Outputs get their initial content back before each run.
        before: copies of the written arrays before any launch.
        written: names of the arguments that the kernel writes.
        values: canonical argument values; pointers among them are replaced at each run.
        around: copies of the outputs' canvases before any launch, None where an output has none.
        grid, block: of the launch, by the family's rule for the problem as it was built.
    """

    def __init__(
        self, kernel: Kernel, case: Case, *, definition: Definition | None = None, budget: int = BUDGET, **options: Any
    ) -> None:
        """Build the problem of ``case``.

        Args:
            budget: wave-instructions a wave may execute (emulator only).
            options: launch options of the device.

        Raises:
            ArgumentError: no declared problem, or sizes no operands can be made of. LaunchError: several ranks.
        """
        self.kernel, self.case = kernel, case
        self.definition = definition or declared(kernel)
        self.problem = self.definition.problem(kernel.info, case, check=False)
        if len(self.problem.launches) != 1:
            raise LaunchError(f"probe of {kernel.name}", got=f"{len(self.problem.launches)} ranks", need="one launch")
        self.values, self._buffers = bind(kernel.schema, self.problem.launches[0])
        self.arrays: dict[str, np.ndarray] = {name: _owner(buffer) for name, buffer in self._buffers.items()}
        self.written = tuple(name for name in self.arrays if kernel.schema[name].role.startswith("output"))
        self.before = {name: self.arrays[name].copy() for name in self.written}
        self.around = [None if output.around is None else output.around.whole.copy() for output in self.problem.outputs]
        rule = self.definition.family.launch(kernel.info, self.values, self._buffers)
        self.grid, self.block, self.lds, self._zero = rule.grid, rule.block, rule.dynamic_lds, rule.zero
        self.options = dict(options)
        if kernel.device.name == "emulator":
            self.options = {"max_instructions": budget, "threads": 1, **self.problem.options, **options}

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """The operands' buffers by argument."""
        return self._buffers

    def limit(self, seen: Observation | None) -> None:
        """Call a launch endless when a wave takes many times the instructions that all waves of ``seen`` took."""
        if seen is not None and seen.instructions is not None:
            self.options["max_instructions"] = min(self.options["max_instructions"], 20 * seen.instructions)

    def spilled(self) -> int:
        """Elements that the last run changed where nothing may be written."""
        pairs = zip(self.problem.outputs, self.around, strict=True)
        return sum(one.around.spilled(old) for one, old in pairs if one.around is not None and old is not None)

    def outside(self) -> int:
        """Elements that the last run changed in the outputs' arrays outside of the results."""
        count = 0
        for output, before in zip(self.problem.outputs, self.around, strict=True):
            if output.around is not None and before is not None:
                if not output.result.size:
                    count += int((output.around.whole.view(_raw(output)) != before.view(_raw(output))).sum())
                    continue
                changed = output.around.whole.view(_raw(output)) != before.view(_raw(output))
                base, result = output.around.whole, output.result
                offset = (result.ctypes.data - base.ctypes.data) // base.itemsize
                row, column = divmod(offset, base.shape[1])
                count += int(changed.sum() - changed[row:, column:][: result.shape[0], : result.shape[1]].sum())
        return count

    def initial(self) -> dict[str, np.ndarray]:
        """What every buffer holds when a launch starts."""
        return {name: self.before.get(name, array) for name, array in self.arrays.items()}

    def change(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Put arrays into the operands' memory; gives the numbers among ``arguments``, by canonical name.

        Raises:
            ArgumentError: a name that is no argument, or an array of another size than the operand's.
        """
        values: dict[str, Any] = {}
        for name, value in self.kernel.schema.canonical(arguments).items():
            if not isinstance(value, np.ndarray):
                values[name] = value
                continue
            target = self.arrays.get(name)
            if target is None or target.nbytes != value.nbytes:
                need = "no array" if target is None else f"{target.nbytes} bytes, as in the problem"
                raise ArgumentError(f"argument {name}", got=f"{value.nbytes} bytes", need=need)
            target.reshape(-1).view(np.uint8)[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return values

    def kernarg(self, *, values: Mapping[str, Any] | None = None) -> bytes:
        """The argument bytes with the addresses of the arrays, and ``values`` instead of the problem's own."""
        where = {name: buffer.address for name, buffer in self._buffers.items()}
        hidden = hidden_values(self.kernel.schema, self.grid, self.block, self.lds)
        return self.kernel.schema.pack({**self.values, **hidden, **where, **(values or {})})

    def run(
        self,
        patch: Mapping[int, bytes] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> Observation:
        """Launch once.

        Args:
            patch: bytes to put over the packed arguments, by offset.
            values: argument values instead of the problem's own.
            arrays: other arrays for some of the buffers; they count as written where the buffer does.
        """
        device = self.kernel.device
        buffers = dict(self._buffers)
        for name, array in (arrays or {}).items():
            buffers |= bind_one(name, array)
        for name in self.written:
            if name not in (arrays or {}):
                self.arrays[name][...] = self.before[name]
        hidden = hidden_values(self.kernel.schema, self.grid, self.block, self.lds)
        error: AsmlaunchError | None = None
        findings: tuple[str, ...] = ()
        instructions, result = None, None
        try:
            with device.staged(tuple(buffers.values()), self._zero, **self.options) as addresses:
                packed = bytearray(self.kernel.schema.pack({**self.values, **hidden, **(values or {}), **addresses}))
                for offset, data in (patch or {}).items():
                    packed[offset : offset + len(data)] = data
                result = device.launch(
                    self.kernel.info,
                    self.kernel.code_object,
                    bytes(packed),
                    grid=self.grid,
                    block=self.block,
                    dynamic_lds=self.lds,
                    buffers=tuple(buffers.values()),
                    **self.options,
                )
                findings, instructions = tuple(map(str, result.findings)), result.instructions
        except DeviceError as raised:
            error = raised
        except EmulationError as raised:
            error, findings = raised, tuple(map(str, raised.findings))
        outputs = {name: _bytes(_owner(buffers[name])).copy() for name in self.written}
        return Observation(outputs, error, findings, instructions, result)


def declared(kernel: Kernel) -> Definition:
    """The problems of the kernel's family.

    Raises:
        KernelNotFoundError: none are declared.
    """
    definition = definition_of(kernel.info)
    if definition is None:
        raise KernelNotFoundError(
            f"kernel {kernel.name}", got="a family without declared problems", need=f"one of {', '.join(DEFINITIONS)}"
        )
    return definition


def bind_one(name: str, array: np.ndarray) -> dict[str, Buffer]:
    """The buffer of one array, by its argument's name."""
    _, buffer = resolve(name, array)
    assert buffer is not None
    return {name: buffer}


def _raw(output: Output) -> str:
    return f"u{output.result.dtype.itemsize}"


def _owner(buffer: Buffer) -> np.ndarray:
    assert isinstance(buffer.owner, np.ndarray)
    return buffer.owner


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
