"""The manual's pseudocode as an oracle: the text that tinygrad's wheel carries, parsed and evaluated lane by lane.

tinygrad generated the text from AMD's CDNA4 ISA manual. Its module is private, so nothing else here touches it; the
version is pinned in the ``dev`` extra. Values are numbers with a width and a type, all arithmetic is Python's and
numpy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
_UINTS = {16: np.uint16, 32: np.uint32, 64: np.uint64}


@cache
def texts() -> dict[str, str]:
    """Pseudocode by instruction name in lower case, without encoding suffix."""
    from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

    found: dict[str, str] = {}
    for key, text in PCODE.items():
        name = re.sub("_e(32|64)$", "", key.name.lower())
        found.setdefault(name, text)
    return found


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class X:
    """A number: ``kind`` is "u", "i", "f" or "b" (bits); floats are numpy scalars."""

    value: Any
    width: int
    kind: str

    @property
    def bits(self) -> int:
        """The pattern."""
        if self.kind == "f":
            return int(np.asarray(self.value).view(_UINTS[self.width]))
        return int(self.value) & ((1 << self.width) - 1)

    def __bool__(self) -> bool:
        return bool(self.value != 0)


def typed(bits: int, width: int, kind: str) -> X:
    """A pattern read as a type."""
    bits &= (1 << width) - 1
    if kind == "f":
        return X(np.asarray(bits, _UINTS[width]).view(FLOATS[width])[()], width, "f")
    if kind == "i" and bits >> (width - 1):
        bits -= 1 << width
    return X(bits, width, kind)


def boolean(value: Any) -> X:
    """One bit."""
    return X(int(bool(value)), 1, "u")


def to_float(x: X, width: int) -> X:
    """The same number as a float; patterns are read as one."""
    if x.kind == "b" or (x.kind == "u" and x.width >= width and x.value > 1):
        return typed(x.bits, width, "f")
    with np.errstate(all="ignore"):
        return X(FLOATS[width](x.value), width, "f")


def rounded(number: Fraction, width: int) -> X:
    """An exact number rounded to nearest even."""
    digits, lowest = {16: (10, -24), 32: (23, -149), 64: (52, -1074)}[width]
    sign, size = number < 0, abs(number)
    if size == 0:
        return X(FLOATS[width](0), width, "f")
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** max(exponent - digits, lowest)
    whole = round(size / unit)  # Python rounds halves to even
    value = whole * unit
    largest = (2 - Fraction(2) ** -digits) * Fraction(2) ** {16: 15, 32: 127, 64: 1023}[width]
    with np.errstate(all="ignore"):
        result = FLOATS[width](np.inf) if value > largest else FLOATS[width](float(value))
    return X(-result if sign else result, width, "f")


def fma(a: X, b: X, c: X) -> X:
    """a * b + c, rounded once."""
    width = a.width
    with np.errstate(all="ignore"):
        simple = np.float64(a.value) * np.float64(b.value) + np.float64(c.value)
        if all(np.isfinite(x.value) for x in (a, b, c)):
            exact = Fraction(float(a.value)) * Fraction(float(b.value)) + Fraction(float(c.value))
            if exact != 0:
                return rounded(exact, width)
            product = FLOATS[width](a.value) * FLOATS[width](b.value)  # its sign decides the sign of the zero
            if product == 0 or float(product) == -float(c.value):
                return X(FLOATS[width](product + FLOATS[width](c.value)), width, "f")
            return X(FLOATS[width](0), width, "f")
        return X(FLOATS[width](simple), width, "f")


# ---------------------------------------------------------------- functions of the pseudocode


def _exponent(x: X) -> X:
    digits = {16: 10, 32: 23, 64: 52}[x.width]
    return X(x.bits >> digits & ((1 << (x.width - 1 - digits)) - 1), 32, "i")


def _mantissa(x: X) -> X:
    fraction, _ = np.frexp(np.float64(x.value))
    return X(FLOATS[x.width](fraction), x.width, "f")


def _is_signalling(x: X) -> X:
    digits = {16: 10, 32: 23, 64: 52}[x.width]
    return boolean(np.isnan(x.value) and not x.bits >> (digits - 1) & 1)


def _truncated(width: int, signed: bool) -> Callable[[X], X]:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)

    def convert(x: X) -> X:
        if np.isnan(x.value):
            return X(0, width, "i" if signed else "u")
        number = float(x.value)
        limited = high if number > high else low if number < low else int(number)
        return X(limited, width, "i" if signed else "u")

    return convert


def _widened_nan(x: X, width: int) -> X:
    """A NaN with the same payload: numpy would quiet it."""
    digits = {16: 10, 32: 23, 64: 52}
    payload = (x.bits & ((1 << digits[x.width]) - 1)) << digits[width] >> digits[x.width]
    exponent = ((1 << (width - 1)) - (1 << digits[width])) | (x.bits >> (x.width - 1)) << (width - 1)
    return typed(exponent | payload or exponent | 1, width, "f")


def _to_float(width: int) -> Callable[[X], X]:
    def convert(x: X) -> X:
        if x.kind == "f" and np.isnan(x.value) and width >= x.width:
            return _widened_nan(x, width)
        if x.kind != "f":
            return rounded(Fraction(int(x.value)), width)
        with np.errstate(all="ignore"):
            return X(FLOATS[width](x.value), width, "f")

    return convert


def _same(function: Callable[[Any], Any]) -> Callable[[X], X]:
    def apply(x: X) -> X:
        with np.errstate(all="ignore"):
            return X(FLOATS[x.width](function(x.value)), x.width, "f")

    return apply


def _ldexp(x: X, exponent: X) -> X:
    if not np.isfinite(x.value) or x.value == 0:
        return x
    power = min(max(int(exponent.value), -5000), 5000)  # beyond, nothing changes but the time it takes
    return rounded(Fraction(float(x.value)) * Fraction(2) ** power, x.width)


def _quieted(x: X) -> X:
    digits = {16: 10, 32: 23, 64: 52}[x.width]
    return typed(x.bits | 1 << (digits - 1), x.width, "f")


def _sign_extended(x: X, width: X) -> X:
    count = int(width.value)
    if count == 0 or count >= x.width:
        return typed(0 if count == 0 else x.bits, x.width, "i")
    value = typed(x.bits, count, "i")
    return X(value.value, x.width, "i")


def _call_instruction(name: str) -> Callable[..., X]:
    """Functions named like instructions: their pseudocode."""

    def apply(*args: X) -> X:
        width = int(re.findall(r"\d+", name)[-1])
        state = run(name, {f"S{number}": X(arg.bits, 64, "b") for number, arg in enumerate(args)})
        return typed(state["D0"].bits, width, {"f": "f", "i": "i", "u": "u"}[name[-len(str(width)) - 1]])

    return apply


_FUNCTIONS: dict[str, Callable[..., X]] = {
    "fma": fma, "exponent": _exponent, "mantissa": _mantissa, "ldexp": _ldexp, "signext_from_bit": _sign_extended,
    "isNAN": lambda x: boolean(np.isnan(x.value)), "isSignalNAN": _is_signalling,
    "isQuietNAN": lambda x: boolean(np.isnan(x.value) and not _is_signalling(x)), "cvtToQuietNAN": _quieted,
    "sign": lambda x: boolean(x.bits >> (x.width - 1)),
    "abs": lambda x: typed(x.bits & ~(1 << (x.width - 1)), x.width, "f"),
    "signext": lambda x: X(x.value, 64, "i"), "bitCount": lambda x: X(bin(x.bits).count("1"), 32, "i"),
    "trunc": _same(np.trunc), "floor": _same(np.floor), "fract": _same(lambda v: v - np.floor(v)),
    "sqrt": _same(np.sqrt), "isEven": lambda x: boolean(np.isfinite(x.value) and int(x.value) % 2 == 0),
    "f32_to_i32": _truncated(32, True), "f32_to_u32": _truncated(32, False), "f64_to_i32": _truncated(32, True),
    "f64_to_u32": _truncated(32, False), "f16_to_i16": _truncated(16, True), "f16_to_u16": _truncated(16, False),
    "f32_to_u8": _truncated(8, False),
    **dict.fromkeys(("i32_to_f32", "u32_to_f32", "f16_to_f32", "f64_to_f32"), _to_float(32)),
    **dict.fromkeys(("i32_to_f64", "u32_to_f64", "f32_to_f64"), _to_float(64)),
    **dict.fromkeys(("f32_to_f16", "u16_to_f16", "i16_to_f16"), _to_float(16)),
    **dict.fromkeys(("i8_to_i32", "i4_to_i32", "i16_to_i32"), lambda x: X(x.value, 32, "i")),
    **dict.fromkeys(("u8_to_u32", "u4_to_u32", "u16_to_u32"), lambda x: X(x.value, 32, "u")),
    "u32_to_u16": lambda x: X(min(x.value, 0xFFFF), 16, "u"),
    "i32_to_i16": lambda x: X(min(max(x.value, -32768), 32767), 16, "i"),
    "s_ff1_i32_b64": lambda x: X((x.bits & -x.bits).bit_length() - 1, 32, "i"),
    "bf16_to_f32": lambda x: x,
}  # fmt: skip

# ---------------------------------------------------------------- the language

_TOKEN = re.compile(
    r"\s*(?:(//[^\n]*)|(\d+'(?:0x[0-9a-fA-F]+|-?\d+\.\d+|\d+)(?:ULL|LL|U|F)?)|(\d+'[A-Z]+)|"
    r"(0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+\.\d+F?|\d+(?:ULL|LL|U|F)?)|([A-Za-z_]\w*)|"
    r"(<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|\+:|\*\*|[-+*/%~!&|^<>=?:;,.(){}\[\]])|(\n))"
)


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    text = re.sub(r"//[^\n]*", "", text)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position:].strip() == "":
                break
            raise NotImplementedError(text[position : position + 40])
        token = next(group for group in match.groups() if group is not None)
        position = match.end()
        if token != "\n":
            found.append(token)
    return found


_SUFFIX = re.compile(r"^(bf|b|u|i|f|fp|bf)(\d+)$")


class _Return(Exception):
    def __init__(self, value: X) -> None:
        self.value = value


class _Break(Exception):
    pass


State = dict[str, Any]
Expression = Callable[[State], X]
Statement = Callable[[State], None]


def _literal(token: str) -> X:
    width, quote, body = token.rpartition("'")
    number = re.sub("(ULL|LL|U|F)$", "", body) if not body.startswith("0x") else re.sub("(ULL|LL|U)$", "", body)
    if "." in number:
        size = int(width) if quote else 32 if body.endswith("F") else 64
        return X(FLOATS[size](float(number)), size, "f")
    value = int(number, 0)
    if quote:
        return X(value, int(width), "u")
    if body.endswith(("ULL", "LL")):
        return X(value, 64, "u" if body.endswith("ULL") else "i")
    if body.startswith("0x"):
        return X(value, max(32, value.bit_length()), "u")
    return X(value, 32, "u" if body.endswith("U") else "i")


def _arithmetic(symbol: str, a: X, b: X) -> X:
    if symbol in ("<<", ">>"):
        count, value = int(b.value), int(a.value)
        return typed(value << count if symbol == "<<" else value >> count, a.width, a.kind)
    with np.errstate(all="ignore"):
        if a.kind == "f" or b.kind == "f":
            width = max(x.width for x in (a, b) if x.kind == "f")
            kind = FLOATS[width]
            x, y = kind(a.value), kind(b.value)
            if symbol == "**":
                return rounded(Fraction(2) ** int(b.value), width) if abs(int(b.value)) < 5000 else X(x**y, width, "f")
            return X({"+": x + y, "-": x - y, "*": x * y, "/": x / y}[symbol], width, "f")
    width = max(a.width, b.width)
    kind = "i" if a.kind == b.kind == "i" else "u" if "b" not in (a.kind, b.kind) else "b"
    x, y = int(a.value), int(b.value)
    if symbol in "&|^":
        x, y = a.bits, b.bits
        if a.kind == "i" and a.width < width:
            x = a.value & ((1 << width) - 1)
        result = {"&": x & y, "|": x | y, "^": x ^ y}[symbol]
    else:
        width = max(width, 32)
        result = {"+": x + y, "-": x - y, "*": x * y, "/": x // y if y else 0, "%": x % y if y else 0}[symbol]
    return typed(result, width, kind)


def _power(x: X, exponent: X) -> X:
    """x scaled by 2 ** exponent, exactly: the pseudocode's factor would overflow where the product does not."""
    return _ldexp(x, exponent)


def _compared(symbol: str, a: X, b: X) -> X:
    if "denormal" in (a.kind, b.kind):
        x = a if b.kind == "denormal" else b
        return boolean(_exponent(x).value == 0 and x.value != 0)
    x, y = a.value, b.value
    if a.kind != "f" and b.kind != "f" and "i" not in (a.kind, b.kind):
        x, y = a.bits, b.bits
    return boolean(
        {
            "==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y,
            "<>": x < y or x > y,
        }[symbol]
    )  # fmt: skip


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens, self.place = _tokens(text), 0

    def peek(self, ahead: int = 0) -> str:
        at = self.place + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if expected and token != expected:
            raise NotImplementedError(f"{expected} expected, {token} found")
        self.place += 1
        return token

    # ------------------------------------------------------------ statements

    def block(self, *ends: str) -> list[Statement]:
        statements: list[Statement] = []
        while self.peek() and self.peek() not in ends:
            if self.peek() == ";":
                self.take()
                continue
            statements.append(self.statement())
        return statements

    def statement(self) -> Statement:
        token = self.peek()
        if token == "if":
            return self.conditional()
        if token == "for":
            return self.loop()
        if token == "declare":
            return self.declaration()
        if token == "return":
            self.take()
            value = self.expression()

            def give(state: State) -> None:
                raise _Return(value(state))

            return give
        if token == "break":
            self.take()

            def leave(_: State) -> None:
                raise _Break

            return leave
        if token == "{":
            return self.pair_assignment()
        return self.assignment()

    def conditional(self) -> Statement:
        branches: list[tuple[Expression, list[Statement]]] = []
        self.take("if")
        condition = self.expression()
        self.take("then")
        branches.append((condition, self.block("elsif", "else", "endif")))
        otherwise: list[Statement] = []
        while self.peek() != "endif":
            if self.take() == "elsif":
                condition = self.expression()
                self.take("then")
                branches.append((condition, self.block("elsif", "else", "endif")))
            else:
                otherwise = self.block("endif")
        self.take("endif")

        def run_it(state: State) -> None:
            for test, body in branches:
                if test(state):
                    _run_all(body, state)
                    return
            _run_all(otherwise, state)

        return run_it

    def loop(self) -> Statement:
        self.take("for")
        name = self.take()
        self.take("in")
        first = self.expression()
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.block("endfor")
        self.take("endfor")

        def run_it(state: State) -> None:
            for number in range(int(first(state).value), int(last(state).value) + 1):
                state[name] = X(number, 32, "i")
                try:
                    _run_all(body, state)
                except _Break:
                    break

        return run_it

    def declaration(self) -> Statement:
        self.take("declare")
        name = self.take()
        self.take(":")
        width = int(self.take().split("'")[0])
        count = 0
        if self.peek() == "[":
            self.take()
            count = int(self.take())
            self.take("]")

        def run_it(state: State) -> None:
            if name not in state:
                state[name] = [X(0, width, "b") for _ in range(count)] if count else X(0, width, "b")

        return run_it

    def pair_assignment(self) -> Statement:
        self.take("{")
        high = self.target()
        self.take(",")
        low = self.target()
        self.take("}")
        self.take("=")
        value = self.expression()

        def run_it(state: State) -> None:
            whole = value(state).bits
            low(state, X(whole & (1 << 64) - 1, 64, "b"))
            high(state, X(whole >> 64, 1, "u"))

        return run_it

    def assignment(self) -> Statement:
        if self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.function()
        start = self.place
        assign = self.target()
        symbol = self.take()
        if symbol in ("+=", "-="):
            end = self.place
            self.place = start
            old = self.expression()
            self.place = end
            change = self.expression()
            return lambda state: assign(state, _arithmetic(symbol[0], old(state), change(state)))
        if symbol != "=":
            raise NotImplementedError(symbol)
        also = self.second_target()
        value = self.expression()

        def run_it(state: State) -> None:
            result = value(state)
            assign(state, result)
            if also is not None:
                also(state, result)

        return run_it

    def second_target(self) -> Callable[[State, X], None] | None:
        """``a = b = value``."""
        start = self.place
        if re.match(r"^[A-Za-z_]", self.peek()) and self.peek(1) in (".", "["):
            try:
                target = self.target()
            except NotImplementedError:  # an expression
                target = None
            if target is not None and self.peek() == "=":
                self.take()
                return target
        self.place = start
        return None

    def function(self) -> Statement:
        name = self.take()
        self.take("=")
        self.take("lambda")
        self.take("(")
        names = [self.take()]
        while self.peek() == ",":
            self.take()
            names.append(self.take())
        self.take(")")
        self.take("(")
        body = self.block(")")
        self.take(")")

        def call(state: State) -> Callable[..., X]:
            def apply(*args: X) -> X:
                inner = {**state, **dict(zip(names, args, strict=True))}
                try:
                    _run_all(body, inner)
                except _Return as answer:
                    return answer.value
                raise AssertionError(name)

            return apply

        def run_it(state: State) -> None:
            state[name] = call(state)

        return run_it

    def target(self) -> Callable[[State, X], None]:
        name = self.take()
        places: list[tuple[str, Any]] = []
        while self.peek() in (".", "["):
            if self.take() == ".":
                places.append(("type", self.take()))
            else:
                high = self.expression()
                low = high
                if self.peek() == ":":
                    self.take()
                    low = self.expression()
                self.take("]")
                places.append(("bits", (high, low)))
        return lambda state, value: _assign(state, name, places, value)

    # ------------------------------------------------------------ expressions

    def expression(self) -> Expression:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        yes = self.expression()
        self.take(":")
        no = self.expression()
        return lambda state: yes(state) if condition(state) else no(state)

    _LEVELS = (
        ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"),
        ("*", "/", "%"), ("**",),
    )  # fmt: skip

    def binary(self, level: int) -> Expression:
        if level == len(self._LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in self._LEVELS[level]:
            left = _combined(self.take(), left, self.binary(level + 1))
        return left

    def unary(self) -> Expression:
        token = self.peek()
        if token in ("-", "+", "~", "!"):
            self.take()
            inner = self.unary()
            return lambda state: _unary(token, inner(state))
        return self.postfix(self.primary())

    def primary(self) -> Expression:
        token = self.take()
        if token == "(":
            inner = self.expression()
            self.take(")")
            return inner
        if token == "{":
            parts = [self.expression()]
            while self.peek() == ",":
                self.take()
                parts.append(self.expression())
            self.take("}")
            return lambda state: _joined([part(state) for part in parts])
        if re.match(r"^\d+'[A-Z]+$", token):
            return self.conversion(token)
        if re.match(r"^\d", token):
            value = _literal(token)
            return lambda state: value
        if self.peek() == "(":
            return self.call(token)
        return lambda state: _named(state, token)

    def conversion(self, token: str) -> Expression:
        width, kind = token.split("'")
        self.take("(")
        inner = self.expression()
        self.take(")")
        return lambda state: _converted(inner(state), int(width), kind)

    def call(self, name: str) -> Expression:
        self.take("(")
        arguments: list[Expression] = []
        while self.peek() != ")":
            arguments.append(self.expression())
            if self.peek() == ",":
                self.take()
        self.take(")")

        def apply(state: State) -> X:
            function = state.get(name) or _FUNCTIONS.get(name)
            if function is None and name.startswith("v_"):
                function = _call_instruction(name)
            if function is None:
                raise NotImplementedError(name)
            return function(*(argument(state) for argument in arguments))

        return apply

    def postfix(self, base: Expression) -> Expression:
        while self.peek() in (".", "["):
            if self.take() == ".":
                base = _member(base, self.take())
                continue
            high = self.expression()
            if self.peek() == ":":
                self.take()
                base = _slice(base, high, self.expression())
            elif self.peek() == "+:":
                self.take()
                base = _slice_up(base, high, self.expression())
            else:
                base = _index(base, high)
            self.take("]")
        return base


def _run_all(statements: list[Statement], state: State) -> None:
    for statement in statements:
        statement(state)


def _combined(symbol: str, left: Expression, right: Expression) -> Expression:
    if symbol == "||":
        return lambda state: boolean(left(state) or right(state))
    if symbol == "&&":
        return lambda state: boolean(left(state) and right(state))
    if symbol in ("==", "!=", "<>", "<", "<=", ">", ">="):
        return lambda state: _compared(symbol, left(state), right(state))
    if symbol == "*":

        def product(state: State) -> X:
            a, b = left(state), right(state)
            power = getattr(right, "power", None)
            return _power(a, power(state)) if power is not None else _arithmetic("*", a, b)

        return product
    result: Any = lambda state: _arithmetic(symbol, left(state), right(state))  # noqa: E731
    if symbol == "**":
        result.power = right
    return result


def _unary(symbol: str, x: X) -> X:
    if symbol == "!":
        return boolean(not x)
    if symbol == "~":
        return typed(~x.bits, x.width, x.kind)
    if symbol == "-":
        if x.kind == "f":
            return typed(x.bits ^ 1 << (x.width - 1), x.width, "f")
        return typed(-int(x.value), x.width, "i" if x.kind == "u" and x.width < 64 else x.kind)
    return x


def _joined(parts: list[X]) -> X:
    value = width = 0
    for part in parts:
        value, width = value << part.width | part.bits, width + part.width
    return X(value, width, "b")


def _named(state: State, name: str) -> X:
    if name in state:
        return state[name]
    if name == "INF":
        return X(np.float64(np.inf), 64, "f")
    if name == "NAN":
        return X(np.float64(np.nan), 64, "f")
    if name == "DENORM":
        return X(0, 0, "denormal")
    if name in ("UNDERFLOW_F32", "UNDERFLOW_F64"):
        width = int(name[-2:])
        return X(FLOATS[width](0), width, "f")
    if name in ("OVERFLOW_F32", "OVERFLOW_F64"):
        width = int(name[-2:])
        return X(FLOATS[width](np.inf), width, "f")
    raise NotImplementedError(name)


def _converted(x: X, width: int, kind: str) -> X:
    if kind == "F":
        if x.kind == "b" or (x.kind != "f" and x.value > 0xFFF):
            return typed(x.bits, width, "f")
        return _to_float(width)(x)
    if x.kind == "f":
        return _truncated(width, kind == "I")(x)
    return typed(int(x.value), width, {"U": "u", "I": "i", "B": "b"}[kind])


def _member(base: Expression, name: str) -> Expression:
    if name == "IEEE":
        return lambda state: state["IEEE"]
    match = _SUFFIX.match(name)
    if match is None:
        raise NotImplementedError(name)
    kind, width = match[1], int(match[2])

    def read(state: State) -> X:
        x = base(state)
        if kind == "bf":
            return x if x.kind == "f" else typed(x.bits << 16, 32, "f")
        if kind == "fp":
            raise NotImplementedError(name)
        if x.kind == "denormal":
            return x
        if x.kind == "f" and kind == "f" and x.width != width:
            with np.errstate(all="ignore"):
                return X(FLOATS[width](x.value), width, "f")  # INF.f32, NAN.f32
        bits = x.bits if x.kind != "i" or width <= x.width else int(x.value)
        return typed(bits, width, kind)

    return read


def _slice(base: Expression, high: Expression, low: Expression) -> Expression:
    def read(state: State) -> X:
        top, bottom = int(high(state).value), int(low(state).value)
        if top < bottom:  # [0 : 31] reverses
            width = bottom - top + 1
            bits = base(state).bits
            return X(sum((bits >> number & 1) << (width - 1 - number) for number in range(width)), width, "b")
        x = base(state)
        kind = x.kind if x.kind in ("u", "i") else "b"
        return typed(x.bits >> bottom, top - bottom + 1, "u" if kind == "i" else kind)

    return read


def _slice_up(base: Expression, low: Expression, width: Expression) -> Expression:
    return lambda state: typed(base(state).bits >> int(low(state).value), int(width(state).value), "u")


def _index(base: Expression, number: Expression) -> Expression:
    def read(state: State) -> X:
        x, at = base(state), int(number(state).value)
        if isinstance(x, list):
            return x[at]
        return X(x.bits >> at & 1, 1, "u")

    return read


def _assign(state: State, name: str, places: list[tuple[str, Any]], value: X) -> None:
    if name in ("VCC", "EXEC", "SCC", "D1") or name.startswith(("D0", "tmp")) or name in state or not places:
        pass
    else:
        raise NotImplementedError(name)
    if isinstance(state.get(name), list):
        (_, (high, _low)) = places[0]
        items = list(state[name])
        items[int(high(state).value)] = value
        state[name] = items
        return
    if not places:
        old = state.get(name)
        if name in ("D0", "VCC", "EXEC") and old is not None:
            state[name] = X(value.bits, max(old.width, value.width), "b")
        else:
            state[name] = value
        return
    kind, width, low = "b", 64, 0
    for place, what in places:
        if place == "bits":
            top, bottom = (int(one(state).value) for one in what)
            if top < bottom:
                top, bottom = bottom, top
            low, width = low + bottom, top - bottom + 1
        else:
            match = _SUFFIX.match(what)
            if match is None:
                raise NotImplementedError(what)
            if places[-1] == (place, what) or low == 0:
                kind, width = match[1], int(match[2])
    if kind == "f" and value.kind in ("f", "i", "u"):
        value = to_float(value, width) if value.kind == "f" else value
    elif kind in ("u", "i", "b") and value.kind == "f" and value.width != width and kind != "b":
        value = _truncated(width, kind == "i")(value)
    pattern = value.bits if value.kind != "i" else int(value.value) & ((1 << width) - 1)
    old = state.get(name, X(0, 64, "b"))
    mask = (1 << width) - 1 << low
    size = max(old.width, low + width)
    state[name] = X(old.bits & ~mask | pattern << low & mask, size, "b")


@dataclass
class Program:
    """Parsed pseudocode."""

    statements: list[Statement] = field(default_factory=list)


@cache
def parse(name: str) -> Program:
    """The program of an instruction.

    Raises:
        KeyError: there is no pseudocode.
        NotImplementedError: it uses what this evaluator does not know.
    """
    return Program(_Parser(texts()[name]).block())


def run(name: str, state: State) -> State:
    """Evaluate the pseudocode of ``name`` for one lane.

    Args:
        state: names of the pseudocode (S0, S1, D0, VCC, EXEC, SCC, laneId ...) and their values; gets the results.
    """
    state.setdefault("D0", X(0, 64, "b"))
    state.setdefault("IEEE", X(0, 1, "u"))
    state.setdefault("WAVE_MODE", X(0, 1, "u"))
    _run_all(parse(name).statements, state)
    return state
