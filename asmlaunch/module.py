"""Kernels that can be launched: ``load`` a code object, get a :class:`Kernel`, call :meth:`Kernel.launch`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from asmlaunch import codeobject
from asmlaunch.abi import Audit, audit, bind, check_tiling, hidden_values, schema_from_metadata
from asmlaunch.abi.families import family_of
from asmlaunch.devices.base import QuickDevice
from asmlaunch.devices.select import select
from asmlaunch.errors import (
    ArgumentError,
    CodeObjectError,
    DeviceError,
    KernelNotFoundError,
    LaunchError,
    TargetError,
)
from asmlaunch.log import log_launch

if TYPE_CHECKING:
    from asmlaunch.abi import Buffer, Field, KernargSchema, LiveBytes
    from asmlaunch.abi.families import Family, Launch
    from asmlaunch.codeobject import CodeObject, KernelInfo
    from asmlaunch.devices import Device, LaunchResult
    from asmlaunch.devices.base import Dim3


def load(
    source: bytes | str | os.PathLike[str], device: str | Device | None = None, target: str | None = None
) -> Module:
    """Read a code object and get it ready to launch.

    Args:
        source: path of the code object, or its bytes; or of a bundle or fat binary that holds it.
        device: ``"emulator"``, ``"hip"``, ``"hip:N"`` or a device; None takes the first HIP device that can run the
            object, else the emulator. ``repr`` of the module and each launch's result say which it is.
        target: target the code has to run on, e.g. ``"gfx950"`` or ``"gfx942:xnack-"``: chooses the entry of a bundle;
            None takes what there is.

    Returns:
        A module that launches directly when it holds one kernel; ``module["name"]`` is one of several.

    Raises:
        CodeObjectError: not a code object that can be used. TargetError: for another processor than ``target``, or
            than the device's. DeviceError: the device asked for is not there.
    """
    code_object = codeobject.read(source, target)
    return Module(code_object, select(code_object, device))


@dataclass
class _Opened:
    """What a device needs as long as kernels of a module can be launched; shared by the module and its kernels."""

    handle: Any
    closed: bool = False

    def close(self) -> None:
        self.handle, self.closed = None, True


@dataclass(frozen=True)
class _Plan:
    """A launch with everything decided but where its buffers are."""

    values: Mapping[str, Any]
    buffers: tuple[Buffer, ...]
    zero: tuple[str, ...]
    shape: Mapping[str, Any]  # grid, block, dynamic_lds


class Kernel:
    """One kernel of a code object on one device.

    Attributes:
        info: what the object says of the kernel (arguments, registers, LDS, machine code).
        code_object: the object the kernel is in.
        device: where it runs.
        family: the known family of kernels it belongs to, whose launch rule is used; None for others.
        schema: the layout of its argument segment.
    """

    def __init__(self, info: KernelInfo, code_object: CodeObject, device: Device, opened: _Opened) -> None:
        self.info, self.code_object, self.device = info, code_object, device
        self._opened = opened

    @property
    def name(self) -> str:
        """The kernel's name in the object's metadata."""
        return self.info.name

    @cached_property
    def family(self) -> Family | None:
        return family_of(self.info)

    @cached_property
    def schema(self) -> KernargSchema:
        return schema_from_metadata(self.info) if self.family is None else self.family.schema(self.info)

    @cached_property
    def _pointers(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.schema.fields if field.is_pointer)

    @cached_property
    def _tiled(self) -> tuple[Field, ...]:
        return tuple(field for field in self.schema.fields if field.tiling)

    def launch(
        self,
        args: Any,
        *,
        grid: tuple[int, ...] | int | None = None,
        block: tuple[int, ...] | int | None = None,
        dynamic_lds: int | None = None,
        check: bool = True,
        strict_layouts: bool = False,
        **options: Any,
    ) -> LaunchResult:
        """Run the kernel once.

        Args:
            args: mapping or dataclass of argument name -> value. A pointer argument takes the array itself (numpy,
                torch, anything with ``__cuda_array_interface__`` or DLPack) or an address; it is passed as it is.
            grid: workgroups in x, y, z; needed for a kernel of no known family, else the family's launch rule.
            block: work-items of a workgroup in x, y, z; as ``grid``.
            dynamic_lds: bytes of LDS beyond the kernel's static ones; default the launch rule's, else 0.
            check: refuse a problem outside the domain the family's kernels are right on, and a grid or block that
                differs from the launch rule. False launches all the same.
            strict_layouts: refuse arrays that carry no layout for arguments that need one (``layouts.tile`` and
                ``layouts.wrap`` give a tensor its layout). ``check`` alone refuses tensors that carry another layout.
            options: the device's own, e.g. ``stream=`` on a GPU or ``schedule=`` in the emulator.

        Returns:
            The device's name, wall time and findings.

        Raises:
            ArgumentError: missing, unknown or unusable argument. LayoutError: a tensor in another layout than the
                kernel declares. DomainError: outside the kernel's domain.
            LaunchError: no grid or block, one that does not fit, or a closed module. DeviceError: from the device's
                runtime.
        """
        return self._run(self._plan(args, grid, block, dynamic_lds, check, strict_layouts), options)

    def prepare(
        self,
        args: Any,
        *,
        grid: tuple[int, ...] | int | None = None,
        block: tuple[int, ...] | int | None = None,
        dynamic_lds: int | None = None,
        check: bool = True,
        strict_layouts: bool = False,
        **options: Any,
    ) -> Callable[[], None]:
        """:meth:`launch` in two steps: checks and packing now, the launch at each call of the result.

        For a launch that is repeated with the same arguments: on a GPU, with memory of that GPU, a call costs little
        more than the runtime's own. The result keeps the arguments alive; keep it as long as the GPU may run them.

        Args: as :meth:`launch`.

        Raises:
            What :meth:`launch` raises; the result raises DeviceError.
        """
        plan = self._plan(args, grid, block, dynamic_lds, check, strict_layouts)
        if not isinstance(self.device, QuickDevice) or plan.zero or not all(b.on_gpu for b in plan.buffers):
            return lambda: (self._run(plan, options), None)[1]
        with self.device.staged(plan.buffers, (), **options) as addresses:  # checks whose memory it is
            kernarg = self.schema.pack({**plan.values, **addresses})
            log_launch(self.name, self.device.name, plan.shape, self.schema, kernarg)
        call = self.device.ready(self.info, self.code_object, kernarg, **plan.shape, **options)
        return partial(_call_holding, call, plan.buffers) if plan.buffers else call

    def audit(self, args: Any = None) -> Audit:
        """What is wrong with the kernel's arguments: its declaration against metadata and machine code, and a launch's.

        Args:
            args: as :meth:`launch`; None looks at no launch.

        Returns:
            The findings, the worst first, and what the machine code does with each argument. The machine code is left
            out where it cannot be read (another architecture, the ``emulator`` extra not installed).

        Raises:
            ArgumentError: an argument that is unknown, missing or unusable.
        """
        values, buffers = (None, None) if args is None else bind(self.schema, as_mapping(args))
        return audit(self.info, values=values, buffers=buffers, loaded=_live_bytes(self.info))

    def _plan(
        self, args: Any, grid: Any, block: Any, dynamic_lds: int | None, check: bool, strict_layouts: bool
    ) -> _Plan:
        """Bind the arguments, check them, and find grid and block."""
        if self._opened.closed:
            raise LaunchError(f"kernel {self.name}", got="a closed module", need="an open one", hint="load it again")
        args = as_mapping(args)
        if check or strict_layouts:
            for field in self._tiled:
                check_tiling(field, args, strict_layouts)
        values, buffers = bind(self.schema, args)
        zero: tuple[str, ...] = ()
        given_grid, given_block = dim3("grid", grid), dim3("block", block)
        if self.family is not None:
            if check:
                _check_pointers(values, buffers, self._pointers)
                self.family.check(self.info, values, buffers)
            rule = self._rule(values, buffers, needed=check or given_grid is None or given_block is None)
            if rule is not None:
                zero = tuple(rule.zero)
                if check:
                    self._same("grid", given_grid, rule.grid)
                    self._same("block", given_block, rule.block)
                given_grid, given_block = given_grid or rule.grid, given_block or rule.block
                dynamic_lds = rule.dynamic_lds if dynamic_lds is None else dynamic_lds
        if given_grid is None or given_block is None:
            missing = " and ".join(n for n, v in (("grid", given_grid), ("block", given_block)) if v is None)
            raise LaunchError(
                f"kernel {self.name} is of no family whose launch rule is known",
                need=f"{missing} (in workgroups and in work-items)",
                hint=f"pass {missing.replace(' and ', '=, ')}= to launch",
            )
        shape = {"grid": given_grid, "block": given_block, "dynamic_lds": dynamic_lds or 0}
        values |= hidden_values(self.schema, given_grid, given_block, dynamic_lds or 0)
        return _Plan(values, tuple(buffers.values()), zero, shape)

    def _rule(self, values: Mapping[str, Any], buffers: Mapping[str, Buffer], needed: bool) -> Launch | None:
        """The family's launch rule for these arguments; None where it cannot be told and grid and block are given."""
        assert self.family is not None
        try:
            return self.family.launch(self.info, values, buffers)
        except (ArgumentError, ZeroDivisionError) as error:
            if not needed:
                return None
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(
                f"arguments of {self.name} give no grid ({error})", hint="pass grid= and block="
            ) from error

    def _run(self, plan: _Plan, options: Mapping[str, Any]) -> LaunchResult:
        """Put the buffers where the device can reach them, pack, launch."""
        if self.device.name == "emulator":
            options = {**_for_checks(self.schema, plan), **options}
        with self.device.staged(plan.buffers, plan.zero, **options) as addresses:
            kernarg = self.schema.pack({**plan.values, **addresses})
            log_launch(self.name, self.device.name, plan.shape, self.schema, kernarg)
            return self.device.launch(
                self.info, self.code_object, kernarg, **plan.shape, buffers=plan.buffers, **options
            )

    def _same(self, what: str, given: Dim3 | None, rule: Dim3) -> None:
        """Refuse a grid or block that differs from what the launch rule gives."""
        if given not in (None, rule):
            raise LaunchError(
                f"{what} of {self.name}",
                got=given,
                need=f"{rule} by the launch rule of its family",
                hint=f"leave {what}= out, or pass check=False to launch it all the same",
            )

    def __repr__(self) -> str:
        return f"<Kernel {self.name} for {self.code_object.target} on {self.device.name}>"


class Module:
    """The kernels of one code object on one device: ``module["name"]`` is a kernel, iteration gives the names.

    Attributes:
        code_object: the object.
        device: where its kernels run.
    """

    def __init__(self, code_object: CodeObject, device: Device) -> None:
        self.code_object, self.device = code_object, device
        self._opened = _Opened(device.open(code_object))
        self._kernels = {
            name: Kernel(info, code_object, device, self._opened) for name, info in code_object.kernels.items()
        }

    def __getitem__(self, name: str) -> Kernel:
        # The object's own mapping raises KernelNotFoundError, which lists the names there are.
        return self._kernels[self.code_object.kernels[name].name]

    def __contains__(self, name: object) -> bool:
        return name in self._kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    @property
    def kernel(self) -> Kernel:
        """The only kernel of the object.

        Raises:
            KernelNotFoundError: it holds several.
        """
        if len(self) != 1:
            raise KernelNotFoundError(
                f"{self.code_object.path or 'the code object'} holds {len(self)} kernels",
                need=f"a choice among {', '.join(self)}",
                hint='take one with module["name"]',
            )
        return next(iter(self._kernels.values()))

    def launch(self, args: Any, **how: Any) -> LaunchResult:
        """:meth:`Kernel.launch` of the only kernel there is.

        Raises:
            KernelNotFoundError: the object holds several kernels; what :meth:`Kernel.launch` raises.
        """
        return self.kernel.launch(args, **how)

    def close(self) -> None:
        """Let go of the device's copy of the object; its kernels cannot be launched any more.

        On a GPU the module is unloaded, after the device's work is done, when no other module or prepared launch uses
        it. A module that is not closed is let go of with its last reference.
        """
        self._opened.close()

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(self)
        source = self.code_object.path.name if self.code_object.path else f"{len(self.code_object.data)} bytes"
        return f"<Module {source} for {self.code_object.target} on {self.device.name}: {names}>"


def _live_bytes(kernel: KernelInfo) -> LiveBytes | None:
    """What the machine code loads of its arguments, or None where it cannot be read."""
    from asmlaunch.emulator.liveness import liveness

    try:
        return liveness(kernel).live_bytes()
    except (CodeObjectError, DeviceError, TargetError):
        return None


def _for_checks(schema: KernargSchema, plan: _Plan) -> dict[str, Any]:
    """What the emulator's checks want to know of a launch: buffers that hold nothing yet, and bytes nobody has set."""
    outputs = tuple(field.name for field in schema.fields if field.role == "output" and field.name not in plan.zero)
    unset, end = [], 0
    for field in (*(field for field in schema.fields if field.role != "padding"), None):
        start = schema.size if field is None else field.offset
        if start > end:
            unset.append((end, start))
        end = end if field is None else max(end, field.end)
    return {"outputs": outputs, "unset": tuple(unset)}


def as_mapping(args: Any) -> Mapping[str, Any]:
    """Named arguments from a mapping or a dataclass instance.

    Raises:
        ArgumentError: neither of them.
    """
    if isinstance(args, Mapping):
        return args
    if dataclasses.is_dataclass(args) and not isinstance(args, type):
        return {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
    raise ArgumentError("arguments", got=type(args).__name__, need="a mapping or a dataclass of named arguments")


def _check_pointers(values: Mapping[str, Any], buffers: Mapping[str, Buffer], pointers: tuple[str, ...]) -> None:
    """Refuse pointers that no kernel can use.

    Raises:
        ArgumentError: an array whose memory was freed, or an address that is not a multiple of 4: buffer instructions
            drop the two low bits of an address (AMD CDNA3 ISA, "Memory Buffer Addressing"), so that data would shift.
    """
    for name in pointers:
        value, buffer = values.get(name, 0), buffers.get(name)
        if buffer is not None and buffer.nbytes and not buffer.address:
            raise ArgumentError(f"array {name}", got=f"{buffer.nbytes} bytes at address 0", need="memory not yet freed")
        if value % 4:
            raise ArgumentError(f"address of {name}", got=f"{value:#x}", need="a multiple of 4")


def _call_holding(call: Callable[[], None], _buffers: tuple[Buffer, ...]) -> None:
    """``call``, as part of an object that keeps its buffers alive."""
    call()


def dim3(what: str, value: tuple[int, ...] | int | None) -> Dim3 | None:
    """Three extents from one to three; the ones left out are 1.

    Raises:
        LaunchError: not one to three integers, or one below zero.
    """
    if value is None:
        return None
    extents = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(extents) <= 3 or not all(isinstance(e, int) and e >= 0 for e in extents):
        raise LaunchError(what, got=value, need="one to three integers, none below 0")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
