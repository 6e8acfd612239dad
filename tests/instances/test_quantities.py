"""Processors, memory and devices as people write them (section 2.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.instances.quantities import read_cpu, read_gpu, read_memory


@pytest.mark.parametrize(
    ("text", "value"), [("", None), ("2", 2000), ("0.5", 500), ("500m", 500), ("1.25", 1250), ("0.01", 10)]
)
def test_processors(text: str, value: int | None) -> None:
    """Whole, in decimals, in thousandths; an empty text is no limit."""
    assert read_cpu(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("1", 1),
        ("512M", 512 << 20),
        ("2Gi", 2 << 30),
        ("3K", 3072),
        ("4Ki", 4096),
        ("5G", 5 << 30),
        ("6Mi", 6 << 20),
    ],
)
def test_memory(text: str, value: int | None) -> None:
    """K, M, G and Ki, Mi, Gi are powers of 1024."""
    assert read_memory(text) == value


@given(st.text(max_size=12))
def test_odd_quantities(text: str) -> None:
    """A reader gives a positive number, nothing for nothing, or says what is wanted; it takes ASCII digits only."""
    for reader in (read_cpu, read_memory, read_gpu):
        try:
            value = reader(text)
        except ValueError as wrong:
            assert str(wrong)  # noqa: PT017 - any text may be refused; what counts is that words come with it
        else:
            assert value is None if text == "" else value == "all" or (text.isascii() and int(value or 0) > 0)


@pytest.mark.parametrize(
    "text", ["1_0", "\uff11\uff10", "\u0663", " 5", "5 ", "+5", "0x5", "5\n", "1e3", "-1", "NaN", "inf", ".5", "5."]
)
def test_numbers_as_python_reads_them(text: str) -> None:
    """What int() and float() would take and people did not mean is refused."""
    for reader in (read_cpu, read_memory, read_gpu):
        with pytest.raises(ValueError, match="must be"):
            reader(text)
