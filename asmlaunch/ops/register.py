"""``register``: an operator of any loaded kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from asmlaunch.errors import ArgumentError
from asmlaunch.module import Kernel, Module
from asmlaunch.ops.kernels import device_name, kernel_of

Extent = tuple[int, ...] | int
Grid = Extent | Callable[[Mapping[str, Any]], Extent] | None


def register(
    kernel: Kernel | Module,
    schema: str,
    *,
    grid: Grid = None,
    block: Extent | None = None,
    check: bool = True,
    **options: Any,
) -> Callable[..., None]:
    """Make a torch operator that launches a kernel, on the device of its tensors.

    Args:
        kernel: a kernel, or a module that holds one. Tensors on another device run the same object there.
        schema: name and arguments in torch's notation, e.g.
            ``"mine::scale(Tensor x, int n, *, Tensor(a!) out) -> ()"``. Arguments are named as the kernel's; those that
            the kernel's schema can fill in may be left out. A tensor that the kernel writes is marked ``(a!)`` and
            stands behind the ``*``: an output given by position would be taken for an input some day.
        grid: workgroups, or a function of the arguments by name; None is the launch rule of the kernel's family.
        block: work-items of a workgroup; None is the launch rule's.
        check: as in :meth:`asmlaunch.Kernel.launch`.
        options: of the device, as in :meth:`asmlaunch.Kernel.launch`.

    Returns:
        The operator. It returns nothing; it writes the marked tensors. It is also ``torch.ops.mine.scale``.

    Raises:
        ArgumentError: a schema that cannot be read or returns something, an argument the kernel does not have, an
            output that is not marked or not keyword-only.
    """
    kernel = kernel.kernel if isinstance(kernel, Module) else kernel
    parsed = _parse(schema)
    _check_arguments(parsed, kernel)
    name = str(parsed.name)
    names = [argument.name for argument in parsed.arguments]
    torch.library.define(name, schema[schema.index("(") :])

    def launch(*args: Any, **keywords: Any) -> None:
        given = dict(zip(names, args, strict=False)) | keywords
        tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
        here = kernel_of(kernel.code_object, kernel.name, device_name(tensors))
        extent = grid(given) if callable(grid) else grid
        here.launch(given, grid=extent, block=block, check=check, **options)

    def refuse_gradients(*args: Any, **keywords: Any) -> None:
        """Machine code has no derivative: better an error than a gradient that is silently missing."""
        for value in (*args, *keywords.values()):
            if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
                raise ArgumentError(
                    f"operator {name}", got="a tensor that requires a gradient", need="one that does not",
                    hint="call it under torch.no_grad(), or detach the tensor",
                )  # fmt: skip
        with torch._C._AutoDispatchBelowAutograd():
            operator(*args, **keywords)

    torch.library.impl(name, ("CPU", "CUDA"), launch)
    torch.library.register_fake(name, lambda *args, **keywords: None)
    torch.library.impl(name, "Autograd", refuse_gradients)
    operator: Callable[..., None] = _resolve(name)
    return operator


def _parse(schema: str) -> Any:
    try:
        parsed = torch._C.parse_schema(schema)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise ArgumentError(f"operator schema ({first})", got=repr(schema), need="torch's notation") from error
    if "::" not in parsed.name:
        raise ArgumentError("operator name", got=repr(parsed.name), need="a namespace, as in mine::scale")
    if parsed.returns:
        raise ArgumentError(
            f"operator {parsed.name}", got="a result", need="-> (): kernels write tensors they are given"
        )
    return parsed


def _check_arguments(parsed: Any, kernel: Kernel) -> None:
    for argument in parsed.arguments:
        field = kernel.schema[argument.name]  # raises for a name the kernel does not have
        is_tensor = "Tensor" in str(argument.type)
        marked = argument.alias_info is not None and argument.alias_info.is_write
        if is_tensor and not marked and field.role.startswith("output"):
            raise ArgumentError(
                f"argument {argument.name} of {parsed.name}",
                got="a tensor that is read",
                need="Tensor(a!): it is written",
            )
        if marked and not argument.kwarg_only:
            raise ArgumentError(
                f"argument {argument.name} of {parsed.name}",
                got="an output given by position",
                need="one behind the *: it could be taken for an input",
            )


def _resolve(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator)
