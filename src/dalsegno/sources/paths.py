"""Paths as they can be stored."""

from __future__ import annotations


def storable(path: str) -> str:
    """Bytes of a name that are no UTF-8 become %XX: neither JSON nor a database takes them as Python keeps them."""
    return "".join(f"%{ord(letter) - 0xDC00:02X}" if 0xDC80 <= ord(letter) <= 0xDCFF else letter for letter in path)
