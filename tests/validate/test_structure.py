"""Where errors are: planted sets of wrong elements are named, in the simplest way."""

from __future__ import annotations

import numpy as np
import pytest

from asmlaunch.validate import structure
from asmlaunch.validate.structure import Mask, Structure, find


def found(wrong: np.ndarray, **more: object) -> Structure:
    mask = Mask(wrong.shape)
    mask.set(0, wrong)
    result = find(mask, **more)
    assert result is not None
    return result


def planted(
    rows: object = slice(None), columns: object = slice(None), shape: tuple[int, int] = (128, 256)
) -> np.ndarray:
    wrong = np.zeros(shape, np.bool_)
    wrong[rows, columns] = True
    return wrong


@pytest.mark.parametrize(
    ("rows", "columns", "text", "axes"),
    [
        (slice(32, 64), slice(None), "rows 32..63", ("row",)),
        (5, slice(None), "row 5", ("row",)),
        (slice(None), slice(3, None, 16), "columns = 3 mod 16", ("column",)),
        (np.arange(128) // 32 % 2 == 1, slice(None), "every second group of 32 rows, the odd ones", ("row",)),
        (np.arange(128) // 16 % 2 == 0, slice(None), "every second group of 16 rows, the even ones", ("row",)),
        (slice(None), np.arange(256) % 32 >= 20, "columns 20..31 of every 32", ("column",)),
        (slice(64, None), slice(3, None, 8), "rows 64..127, columns = 3 mod 8", ("row", "column")),
        (slice(None), np.isin(np.arange(256), [3, 60, 61, 200]), "columns 3, 60..61, 200", ("column",)),
        (slice(None), slice(None), "no pattern", ()),
    ],
)
@pytest.mark.parametrize("density", [1.0, 0.6])
def test_planted_rows_and_columns(
    rows: object, columns: object, text: str, axes: tuple[str, ...], density: float
) -> None:
    """With every element of the set wrong, and with some right by chance; the odd element outside does not hide it."""
    wrong = planted(rows, columns)
    if density < 1:
        random = np.random.default_rng(0)
        wrong &= random.random(wrong.shape) < density
        wrong |= random.random(wrong.shape) < 0.001
    result = found(wrong)
    assert (result.where, result.axes) == (text, axes)
    assert result.explained == 1.0 if density == 1 else result.explained > 0.75
    assert result.density == pytest.approx(density, abs=0.15)


def test_tiles() -> None:
    wrong = planted()
    wrong[...] = False
    wrong[:32, 128:] = wrong[64:96, :128] = True
    result = found(wrong, tile=(32, 128))
    assert (result.where, result.axes) == ("2 of 8 tiles of 32x128: (0, 1), (2, 0)", ("tile",))
    assert (result.explained, result.density) == (1.0, 1.0)
    # The edge tiles are smaller, and one row of tiles is rows.
    assert found(planted(slice(64, None), shape=(70, 100)), tile=(32, 64)).where == "rows 64..69"


def test_a_tile_size_is_a_period_too() -> None:
    columns = np.arange(480) % 96 == 95
    assert found(planted(columns=columns, shape=(8, 480)), tile=(8, 96)).where == "columns = 95 mod 96"


def test_labels() -> None:
    """What no rows and columns explain: the lane that wrote an element."""
    lanes = np.random.default_rng(0).integers(0, 64, (64, 64))
    result = found((lanes >= 16) & (lanes < 32), labels={"lane": lanes})
    assert (result.where, result.axes, result.explained) == ("lanes 16..31", ("lane",), 1.0)
    assert found(lanes < 99, labels={"lane": lanes * 0}).axes == ()


def test_scattered_and_single_elements() -> None:
    wrong = np.random.default_rng(0).random((64, 64)) < 0.3
    assert "all over" in str(found(wrong))
    few = planted()
    few[...] = False
    few[3, 7] = few[90, 2] = True
    assert found(few).where == "elements (3, 7), (90, 2)"
    few[90, 2] = False
    assert found(few).where == "row 3, column 7"


def test_other_ranks() -> None:
    line = np.zeros(100, np.bool_)
    line[40:50] = True
    assert found(line).where == "elements 40..49"
    cube = np.zeros((2, 3, 8), np.bool_)
    cube[1] = True
    assert found(cube).where == "rows 3..5"
    assert found(np.ones((), np.bool_)).wrong == 1
    assert find(Mask((3, 4))) is None


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = np.random.default_rng(0).random((37, 50)) < 0.1
    wrong[:, 8:16] = True
    lanes = np.arange(37 * 50).reshape(37, 50) % 64
    whole = found(wrong, tile=(8, 16), labels={"lane": lanes})
    monkeypatch.setattr(structure, "_CHUNK", 256)
    assert found(wrong, tile=(8, 16), labels={"lane": lanes}) == whole
    assert whole.as_dict()["where"] == "columns 8..15"
