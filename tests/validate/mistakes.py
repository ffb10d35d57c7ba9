"""Seeded mistakes: what an integrator did wrong, made on purpose and executed, and what the diagnosis must name.

Each one changes the arrays or numbers of a right launch with numpy and ``layouts`` alone, and runs the kernel on the
emulator; nothing of ``validate.diagnose`` is used to make them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import asmlaunch
from asmlaunch import layouts
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import bfloat16_bits, to_float64
from asmlaunch.validate.diagnose import Diagnosis, diagnose
from asmlaunch.validate.problems import DEFINITIONS, Case

OURS = Path(__file__).parents[2] / "fixtures" / "kernels"

F4 = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
F4_SPLIT = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512.co"
F4_UNMASKED = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_192x256.co"
BF16 = "gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co"
I8 = "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co"
FP8 = "gfx950/f8_block_scale_mi350_x32.co"
SGEMM = "sgemm.gfx950.co"

FAMILIES = {F4: "f4gemm", F4_SPLIT: "f4gemm", F4_UNMASKED: "f4gemm", BF16: "bf16gemm", I8: "i8gemm",
            FP8: "fp8_block_scale", SGEMM: "sgemm"}  # fmt: skip

PLAIN = {
    F4: "m=20, n=128, k=416, pad=0", F4_SPLIT: "m=32, n=512, k=1024, pad=0", F4_UNMASKED: "m=192, n=320, k=256, pad=0",
    BF16: "m=24, n=64, k=128, pad=16", I8: "m=64, n=128, k=384, pad=64", FP8: "m=24, n=256, k=384, pad=32",
    SGEMM: "m=37, n=35, k=29, alpha=1.25, beta=-0.5, pad=3",
}  # fmt: skip
"""A small problem a kernel."""


@dataclass
class Run:
    """A launch that goes wrong.

    Attributes:
        args: the arguments by the names of the problem; to be changed.
        how: options of ``Kernel.launch``; to be changed.
        reference: what is right, float64.
        before: what is in the output's memory before the launch, where a mistake puts something there.
        result: set by mistakes that no launch makes.
    """

    args: dict[str, Any]
    how: dict[str, Any]
    reference: np.ndarray
    before: np.ndarray | None = None
    result: np.ndarray | None = None


@dataclass(frozen=True)
class Seeded:
    """A mistake.

    Attributes:
        file: of the kernel.
        name: what was done.
        about: kinds and subjects that the first answer must name.
        make: makes it.
        case: changes of the kernel's plain problem.
    """

    file: str
    name: str
    about: tuple[tuple[str, str], ...]
    make: Callable[[Run], None]
    case: str = ""

    @property
    def family(self) -> str:
        return FAMILIES[self.file]


def one(file: str, name: str, kind: str, subject: str, make: Callable[[Run], None], case: str = "") -> Seeded:
    return Seeded(file, name, ((kind, subject),), make, case)


def replace(argument: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Run], None]:
    """Change one array."""

    def make(run: Run) -> None:
        run.args[argument] = np.ascontiguousarray(change(run.args[argument]))

    return make


def number(**values: Callable[[Any], Any]) -> Callable[[Run], None]:
    """Change numbers."""

    def make(run: Run) -> None:
        run.args.update({name: change(run.args[name]) for name, change in values.items()})

    return make


def swap(first: str, second: str) -> Callable[[Run], None]:
    def make(run: Run) -> None:
        run.args[first], run.args[second] = run.args[second], run.args[first]

    return make


def both(*makes: Callable[[Run], None]) -> Callable[[Run], None]:
    def make(run: Run) -> None:
        for each in makes:
            each(run)

    return make


def untiled(tiled: np.ndarray) -> np.ndarray:
    return layouts.untile_scales(tiled, tiled.shape)


def relaid(source: str, target: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: layouts.get(target).apply(layouts.get(source).invert(array), pad_value=0)


def scales(rounding: str, k: int = 416) -> Callable[[np.ndarray], np.ndarray]:
    """The scale bytes that another rounding gives for the problem's A; made of the same random numbers."""

    def change(tiled: np.ndarray) -> np.ndarray:
        values = np.random.default_rng(0).standard_normal((20, k), np.float32)
        return layouts.tile_scales(layouts.quantize_mxfp4(values, rounding)[1])

    return change


def padding(value: int, columns: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(tiled: np.ndarray) -> np.ndarray:
        plain = untiled(tiled).copy()
        plain[:, columns:] = value
        return layouts.tile_scales(plain)

    return change


def nibbles(array: np.ndarray) -> np.ndarray:
    return array << 4 | array >> 4


def fp4_transposed(array: np.ndarray) -> np.ndarray:
    return layouts.pack_fp4(layouts.unpack_fp4(array).T).reshape(array.shape)


def stale(run: Run) -> None:
    """The output's memory holds an earlier result, and the family's launch rule does not zero it."""
    output = run.args["D"]
    earlier = np.random.default_rng(5).standard_normal(output.shape) * np.nanstd(run.reference)
    run.before = bfloat16_bits(earlier) if output.dtype == np.uint16 else earlier.astype(output.dtype)
    value = run.reference + to_float64(run.before)[: len(run.reference), : run.reference.shape[1]]
    run.result = bfloat16_bits(value) if output.dtype == np.uint16 else value.astype(output.dtype)
    run.before = run.before[: len(run.reference), : run.reference.shape[1]]


def bias_along_rows(run: Run) -> None:
    bias = run.args["bias"].astype(np.float64)
    run.result = bfloat16_bits(run.reference - bias + bias[: len(run.reference), None])


def cut_off(run: Run) -> None:
    run.result = (run.reference.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def as_fnuz(codes: np.ndarray) -> np.ndarray:
    values = layouts.FORMATS["e4m3fn"].decode(codes)
    return layouts.FORMATS["e4m3fnuz"].encode(np.clip(values, -240, 240))


def as_float16(bits: np.ndarray) -> np.ndarray:
    return to_float64(bits).astype(np.float16).view(np.uint16)


def grid(z: int, file: str) -> Callable[[Run], None]:
    def make(run: Run) -> None:
        run.how["grid"] = {F4_SPLIT: (1, 1, z), BF16: (1, 1, z)}[file]

    return make


def spaced(array: np.ndarray, columns: int) -> np.ndarray:
    """A strided matrix's memory with the columns close together."""
    flat = np.zeros(array.size, array.dtype)
    flat[: array.shape[0] * columns] = array[:, :columns].ravel()
    return flat.reshape(array.shape)


def transposed_inside(columns: int) -> Callable[[np.ndarray], np.ndarray]:
    """The matrix within a wider array transposed: its memory is that of the other order, close together."""

    def change(array: np.ndarray) -> np.ndarray:
        flat = np.zeros(array.size, array.dtype)
        flat[: array.shape[0] * columns] = array[:, :columns].T.ravel()
        return flat.reshape(array.shape)

    return change


SEEDED: tuple[Seeded, ...] = (
    one(F4, "scales of A not tiled", "layout", "ScaleA", replace("ScaleA", untiled)),
    one(F4, "scales of B not tiled", "layout", "ScaleB", replace("ScaleB", untiled)),
    one(F4, "scales of A for cuBLAS", "layout", "ScaleA", replace("ScaleA", relaid("scales_32x8", "scales_128x4"))),
    one(F4, "scales of B for gfx1250", "layout", "ScaleB", replace("ScaleB", relaid("scales_32x8", "scales_n32k4"))),
    one(F4, "weights not shuffled", "layout", "B", replace("B", lambda b: layouts.unshuffle_weights(b))),
    one(F4, "weights shuffled (32, 16)", "layout", "B", replace("B", relaid("weights_16x16", "weights_32x16"))),
    one(F4, "weights shuffled for an MFMA", "layout", "B", replace("B", relaid("weights_16x16", "weights_mfma_16x128")),
        "k=512"),
    one(F4, "A transposed", "layout", "A", replace("A", fp4_transposed)),
    one(F4, "nibbles of A the other way round", "nibbles", "A or B", replace("A", nibbles)),
    one(F4, "nibbles of B the other way round", "nibbles", "A or B", replace("B", nibbles)),
    one(F4, "padding of 127", "padding", "ScaleA and ScaleB",
        both(replace("ScaleA", padding(0x7F, 13)), replace("ScaleB", padding(0x7F, 13)))),
    one(F4, "padding of 255", "padding", "ScaleA and ScaleB",
        both(replace("ScaleA", padding(0xFF, 13)), replace("ScaleB", padding(0xFF, 13)))),
    one(F4, "scales of A rounded down", "scale", "ScaleA", replace("ScaleA", scales("RoundDown"))),
    one(F4, "scales of A rounded up to a power", "scale", "ScaleA", replace("ScaleA", scales("Ceil"))),
    one(F4, "row stride of A in bytes", "argument", "stride_A0", number(stride_A0=lambda s: s // 2)),
    one(F4, "row stride of D in bytes", "argument", "stride_C0", number(stride_C0=lambda s: 2 * s)),
    one(F4, "row stride of the scales without padding", "argument", "stride_ScaleB0",
        number(stride_ScaleB0=lambda s: 13), "k=416"),
    one(F4, "K in bytes", "argument", "K", number(K=lambda k: k // 2)),
    one(F4, "scales swapped", "swap", "ScaleA and ScaleB", swap("ScaleA", "ScaleB"), "m=128, n=128"),
    one(F4, "alpha, which the kernel ignores", "domain", "alpha", lambda run: None, "alpha=77"),
    one(F4_UNMASKED, "columns that are no whole tiles", "domain", "N", lambda run: None),
    one(F4_SPLIT, "alpha not passed", "factor", "alpha", number(alpha=lambda alpha: 1.0), "alpha=77, k=512"),
    one(F4_SPLIT, "parts of K not launched", "parts", "K", grid(1, F4_SPLIT), "split_k=1"),
    one(F4_SPLIT, "output not zeroed", "accumulation", "result", stale, "split_k=1"),

    one(BF16, "A transposed", "layout", "A", replace("A", lambda a: a.T.reshape(a.shape))),
    one(BF16, "B transposed", "layout", "B", replace("B", lambda b: b.T.reshape(b.shape))),
    one(BF16, "weights shuffled", "layout", "B", replace("B", layouts.get("weights_16x16_16bit").apply)),
    one(BF16, "float16 given", "format", "A and B", both(replace("A", as_float16), replace("B", as_float16))),
    one(BF16, "row stride of A in elements", "argument", "stride_A0", number(stride_A0=lambda s: s // 2)),
    one(BF16, "row stride of D in elements", "argument", "stride_C0", number(stride_C0=lambda s: s // 4)),
    one(BF16, "half of K", "argument", "K", number(K=lambda k: k // 2)),
    one(BF16, "operands swapped", "swap", "A and B", swap("A", "B"), "m=64, n=64"),
    one(BF16, "parts of K not launched", "parts", "K", grid(2, BF16), "k=448, splits=3"),
    one(BF16, "output not zeroed", "accumulation", "result", stale, "k=448, splits=3"),

    one(I8, "bias not passed", "factor", "bias", replace("bias", np.zeros_like)),
    one(I8, "bias along the rows", "axis", "bias", bias_along_rows),
    one(I8, "weights not shuffled", "layout", "B", replace("B", lambda b: layouts.get("weights_32x16").invert(b))),
    one(I8, "weights shuffled (16, 16)", "layout", "B", replace("B", relaid("weights_32x16", "weights_16x16"))),
    one(I8, "scales swapped", "swap", "ScaleA and ScaleB", swap("ScaleA", "ScaleB"), "m=128"),
    one(I8, "scales of A not passed", "factor", "ScaleA", replace("ScaleA", np.ones_like)),
    one(I8, "reciprocals of the scales of B", "scale", "ScaleB", replace("ScaleB", np.reciprocal)),
    one(I8, "row stride of A without padding", "argument", "lda", number(lda=lambda s: 384)),
    one(I8, "row stride of C in elements", "argument", "ldc", number(ldc=lambda s: s // 2)),
    one(I8, "waves of split K one after the other", "race", "schedule",
        lambda run: run.how.update(schedule="barrier", resident=1), "splits=2, k=512"),
    one(I8, "result cut off", "rounding", "result", cut_off),

    one(FP8, "weights not shuffled", "layout", "B", replace("B", lambda b: layouts.unshuffle_weights(b))),
    one(FP8, "scales of A in order of rows", "layout", "ScaleA",
        replace("ScaleA", lambda s: s.T.reshape(s.shape))),
    one(FP8, "scales of B transposed", "layout", "ScaleB", replace("ScaleB", lambda s: s.T.reshape(s.shape)), "n=512"),
    one(FP8, "A in the format of gfx942", "format", "A", replace("A", as_fnuz)),
    one(FP8, "A and B in the format of gfx942", "format", "A and B",
        both(replace("A", as_fnuz), replace("B", as_fnuz))),
    one(FP8, "scales of A not passed", "factor", "ScaleA", replace("ScaleA", np.ones_like)),
    one(FP8, "row stride of D in elements", "argument", "stride_D", number(stride_D=lambda s: s // 2)),
    one(FP8, "row stride of A without padding", "argument", "stride_A", number(stride_A=lambda s: 384)),

    one(SGEMM, "alpha not passed", "factor", "alpha", number(alpha=lambda alpha: 1.0)),
    one(SGEMM, "beta not passed", "factor", "beta", number(beta=lambda beta: 0.0)),
    one(SGEMM, "beta doubled", "factor", "beta", number(beta=lambda beta: 2 * beta)),
    one(SGEMM, "another alpha", "factor", "alpha", number(alpha=lambda alpha: 0.3)),
    one(SGEMM, "A in the other order", "layout", "A", replace("A", transposed_inside(37))),
    one(SGEMM, "leading dimension of B for A", "argument", "lda", number(lda=lambda s: 32)),
    one(SGEMM, "leading dimension of C without padding", "argument", "ldc", number(ldc=lambda s: 37)),
    one(SGEMM, "half of the leading dimension of A", "argument", "lda", number(lda=lambda s: s // 2)),
    one(SGEMM, "half of K", "argument", "K", number(K=lambda k: k // 2), "k=28"),

    Seeded(F4, "scales of A not tiled, nibbles of B the other way round", (("layout", "ScaleA"), ("nibbles", "A or B")),
           both(replace("ScaleA", untiled), replace("B", nibbles))),
    Seeded(I8, "bias not passed, weights not shuffled", (("factor", "bias"), ("layout", "B")),
           both(replace("bias", np.zeros_like), replace("B", lambda b: layouts.get("weights_32x16").invert(b)))),
    Seeded(BF16, "both operands transposed", (("layout", "A"), ("layout", "B")),
           both(replace("A", lambda a: a.T.reshape(a.shape)), replace("B", lambda b: b.T.reshape(b.shape)))),
    Seeded(SGEMM, "alpha not passed, A in the other order", (("factor", "alpha"), ("layout", "A")),
           both(number(alpha=lambda alpha: 1.0), replace("A", transposed_inside(37)))),
)  # fmt: skip


def noise(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return right[random.permutation(len(right))][:, random.permutation(right.shape[1])]


def one_tile(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    wrong = right.copy()
    wrong[:16, :32] = right[16:32, :32] if len(right) >= 32 else right[:16, ::-1][:, :32]
    return wrong


def columns_rotated(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.roll(right, 1, axis=1)


def one_element(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    wrong = right.copy()
    wrong[3, 5] *= 3
    return wrong


def lanes_missing(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    wrong = right.copy()
    wrong[:, 3::16] = 0
    return wrong


def noisy(right: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return right * (1 + 0.05 * random.standard_normal(right.shape))


#: Results that are wrong for reasons that no hypothesis knows: of the right one and random numbers.
UNKNOWN: tuple[Callable[[np.ndarray, np.random.Generator], np.ndarray], ...] = (
    noise, one_tile, columns_rotated, one_element, lanes_missing, noisy,
)  # fmt: skip


@dataclass
class Kernels:
    """Loaded kernels, each once."""

    folder: Path
    loaded: dict[str, Kernel] = field(default_factory=dict)

    def __getitem__(self, file: str) -> Kernel:
        if file not in self.loaded:
            path = (OURS if file == SGEMM else self.folder) / file
            self.loaded[file] = asmlaunch.load(path, device="emulator").kernel
        return self.loaded[file]


def case_of(kernel: Kernel, seeded: Seeded) -> Case:
    definition = DEFINITIONS[seeded.family]
    first = definition.cases(definition.parameters(kernel.info))[0]
    return first.changed(PLAIN[seeded.file]).changed(seeded.case)


def diagnosed(kernels: Kernels, seeded: Seeded, **options: Any) -> Diagnosis:
    """Make the mistake and diagnose it."""
    kernel, definition = kernels[seeded.file], DEFINITIONS[seeded.family]
    case = case_of(kernel, seeded)
    problem = definition.problem(kernel.info, case, check=False)
    (output,) = problem.outputs
    run = Run(dict(problem.launches[0]), dict(problem.options), output.reference().value)
    seeded.make(run)
    if run.result is None:
        kernel.launch(run.args, check=False, **run.how)
        run.result = output.result.copy()
    return diagnose(definition, kernel, case, run.result, before=run.before, **options)


def right(file: str) -> Seeded:
    """No mistake, inside the kernel's domain."""
    return Seeded(file, "", (), lambda run: None, "n=256" if file == F4_UNMASKED else "")


def unknown(
    kernels: Kernels, file: str, spoil: Callable[[np.ndarray, np.random.Generator], np.ndarray], **options: Any
) -> Diagnosis:
    """The diagnosis of a result that no hypothesis explains."""
    kernel, definition = kernels[file], DEFINITIONS[FAMILIES[file]]
    case = case_of(kernel, right(file))
    (output,) = definition.problem(kernel.info, case, check=False).outputs
    value = spoil(output.reference().value, np.random.default_rng(2))
    bf16 = output.result.dtype == np.uint16
    return diagnose(definition, kernel, case, bfloat16_bits(value) if bf16 else value.astype(np.float32), **options)


def named(diagnosis: Diagnosis, about: tuple[tuple[str, str], ...]) -> bool:
    """Whether the first answer names the mistake."""
    return diagnosis.first is not None and sorted(diagnosis.first.about) == sorted(about)
