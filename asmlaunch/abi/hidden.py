"""Hidden arguments: what a launcher fills in for the compiler's built-ins.

Source: LLVM's "User Guide for AMDGPU Backend", table of ``.value_kind``.
"""

from __future__ import annotations

from asmlaunch.abi.schema import KernargSchema

Dim3 = tuple[int, int, int]


def hidden_values(schema: KernargSchema, grid: Dim3, block: Dim3, dynamic_lds: int = 0) -> dict[str, int]:
    """Values of the hidden arguments that ``schema`` has, for a launch; those left out (printf and hostcall buffers,
    heaps, queues, global offsets) stay zero.

    ``grid`` counts whole workgroups, so no workgroup is partial and every remainder is 0; HIP dispatches with 3
    dimensions whatever the extents are.
    """
    known = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": dynamic_lds}
    for axis, groups, items in zip("xyz", grid, block, strict=True):
        known[f"hidden_block_count_{axis}"] = groups
        known[f"hidden_group_size_{axis}"] = items
        known[f"hidden_remainder_{axis}"] = 0
    present = {field.name for field in schema.fields if field.role == "hidden"}
    return {name: value for name, value in known.items() if name in present}
