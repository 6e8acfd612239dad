"""Processors, memory and GPUs as people write them (section 2.6); each reader raises ValueError in words."""

from __future__ import annotations

import re
from typing import Literal

_CPU = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?")
_MILLI = re.compile(r"([0-9]{1,6})m")
_MEMORY = re.compile(r"([0-9]{1,15})(?:([KMG])i?)?")
_UNITS = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_cpu(text: str) -> int | None:
    """Thousandths of a processor from `2`, `0.5` or `500m`; None where nothing is asked."""
    if not text:
        return None
    whole, milli = _CPU.fullmatch(text), _MILLI.fullmatch(text)
    if whole:
        value = int(whole[1]) * 1000 + int((whole[2] or "0").ljust(3, "0"))
    elif milli:
        value = int(milli[1])
    else:
        raise ValueError('must be a number of processors such as "2", "0.5" or "500m"')
    if value < 10:
        raise ValueError("must be at least a hundredth of a processor")
    return value


def read_memory(text: str) -> int | None:
    """Bytes from `512M`, `2Gi` or a bare number; units are powers of 1024."""
    if not text:
        return None
    found = _MEMORY.fullmatch(text)
    if not found:
        raise ValueError('must be a size such as "512M", "2Gi", or a number of bytes')
    value = int(found[1]) * _UNITS[found[2]]
    if value == 0:
        raise ValueError("must be more than zero")
    if value >= 1 << 63:
        raise ValueError("is more memory than there can be")
    return value


def read_gpu(text: str) -> int | Literal["all"] | None:
    """A count, or `all`."""
    if not text:
        return None
    if text == "all":
        return "all"
    if not re.fullmatch("[0-9]{1,3}", text):
        raise ValueError('must be "all" or a count such as "1"')
    if int(text) == 0:
        raise ValueError("must be more than zero")
    return int(text)
