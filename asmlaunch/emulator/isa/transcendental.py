"""Reciprocals, roots, exponentials, logarithms and trigonometry (AMD CDNA4 ISA manual, VOP1 opcodes).

The hardware's results are approximations; the manual's bound is in each note. Here the functions are computed in f64
by polynomials, so that they are the same on every host, and rounded once to the result's type.

f32: the hardware takes denormal operands as zeros and gives no denormals (LLVM scales around each of these
instructions for that reason), whatever MODE says.
"""

import math
from collections.abc import Callable
from typing import Any

from asmlaunch.emulator.isa.language import (
    F16,
    F32,
    F64,
    I32,
    I64,
    Float,
    divide,
    fma,
    is_nan,
    magnitude,
    reciprocal,
    round_down,
    round_to_even,
    select,
    square_root,
    truncate,
)
from asmlaunch.emulator.isa.table import compute
from asmlaunch.emulator.isa.vector_float import frexp_exponent, frexp_mantissa


def polynomial(x: F64, coefficients: list[float]) -> F64:
    """Sum of coefficient * x**n, lowest first (Horner)."""
    result = F64.const(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, F64.const(coefficient))
    return result


_LN2 = math.log(2)
#: Taylor coefficients of 2**x; for |x| <= 1/2 the rest is below 2**-58.
_EXP2 = [_LN2**n / math.factorial(n) for n in range(14)]
#: log2((1 + s) / (1 - s)) = s * sum of these * s**(2n); for |s| <= 0.172 the rest is below 2**-60.
_LOG2 = [2 / _LN2 / (2 * n + 1) for n in range(12)]
#: sin(2 pi x) / x and cos(2 pi x) in x**2; for |x| <= 1/8 the rest is below 2**-60.
_SIN = [(-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(10)]
_COS = [(-1) ** n * (2 * math.pi) ** (2 * n) / math.factorial(2 * n) for n in range(11)]


def exp2(x: F64) -> F64:
    """2**x; beyond f32's range by far, 0 or infinity."""
    limited = select(x > 2000.0, F64.const(2000.0), select(x < -2000.0, F64.const(-2000.0), x))
    whole = round_to_even(limited)
    n = truncate(whole, I32)
    n = select(n > 1023, I32.const(1023), select(n < -1022, I32.const(-1022), n))
    scale = ((n + 1023).to(I64) << 52).bits_as(F64)
    result = polynomial(limited - whole, _EXP2) * scale
    result = select(x >= 1024.0, F64.const(math.inf), select(x <= -1022.0, F64.const(0.0), result))
    return select(is_nan(x), x, result)


def log2(x: F64) -> F64:
    """Base-2 logarithm; -infinity of zeros, NaN of negative numbers."""
    mantissa, exponent = frexp_mantissa(x), frexp_exponent(x)
    low = mantissa < math.sqrt(0.5)
    mantissa = select(low, mantissa * 2.0, mantissa)
    exponent = select(low, exponent - 1, exponent)
    s = divide(mantissa - 1.0, mantissa + 1.0)
    result = s * polynomial(s * s, _LOG2) + exponent.to(F64)
    result = select(x == 0.0, F64.const(-math.inf), result)
    result = select(x < 0.0, F64.const(math.nan), result)
    return select(is_nan(x) | (x == math.inf), x, result)


def _quarter(turns: F64) -> tuple[F64, I32]:
    """Turns as x in -1/8..1/8 and a number of quarter turns."""
    fraction = turns - round_down(turns)
    quarters = round_to_even(fraction * 4.0)
    return fraction - quarters * 0.25, truncate(quarters, I32)


def _turned(turns: F64, first: int) -> F64:
    """Sine (``first`` 0) or cosine (1) of an angle in turns."""
    x, quarters = _quarter(turns)
    square = x * x
    sine, cosine = x * polynomial(square, _SIN), polynomial(square, _COS)
    number = (quarters + first) & 3
    result = select((number & 1) == 0, sine, cosine)
    result = select(number >= 2, 0.0 - result, result)
    return select(magnitude(turns) < math.inf, result, F64.const(math.nan))


def sine(turns: F64) -> F64:
    """sin(2 pi x)."""
    return _turned(turns, 0)


def cosine(turns: F64) -> F64:
    """cos(2 pi x)."""
    return _turned(turns, 1)


def _wide(function: Callable[[F64], F64]) -> Callable[[Any], Any]:
    return lambda x: function(x.to(F64)).to(type(x))


def _reciprocal_root(x: Any) -> Any:
    """1 / sqrt(x), rounded once for f32 and f16."""
    if isinstance(x, F64):
        return reciprocal(square_root(x))
    return reciprocal(square_root(x.to(F64))).to(type(x))


def _define(name: str, kind: type[Float], function: Callable[[Any], Any], bound: str, here: str) -> None:
    def meaning(s0: kind) -> kind:  # type: ignore[valid-type]
        return function(s0)

    note = f"the manual allows {bound}; here {here}"
    compute("valu", f"v_{name}_f{kind.bits}", meaning, exact=False, note=note, denormals="flush")


_ROUNDED = "correctly rounded"
_POLYNOMIAL = "rounded once from an f64 polynomial"
for _kind, _bound in ((F16, "0.51 ulp"), (F32, "1 ulp")):
    _define("rcp", _kind, reciprocal, _bound, _ROUNDED)
    _define("rsq", _kind, _reciprocal_root, _bound, _ROUNDED)
    _define("sqrt", _kind, square_root, _bound, _ROUNDED)
    _define("exp", _kind, _wide(exp2), _bound, _POLYNOMIAL)
    _define("log", _kind, _wide(log2), _bound, _POLYNOMIAL)
    _define("sin", _kind, _wide(sine), "an absolute error of 2**-20 or so", _POLYNOMIAL)
    _define("cos", _kind, _wide(cosine), "an absolute error of 2**-20 or so", _POLYNOMIAL)
_define("rcp_iflag", F32, reciprocal, "1 ulp", _ROUNDED)
for _name, _function in (("rcp", reciprocal), ("rsq", _reciprocal_root), ("sqrt", square_root)):
    _define(_name, F64, _function, "2**-26 or so of relative error, a start for Newton steps", _ROUNDED)
