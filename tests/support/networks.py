"""A network of a test's own: nobody else listens there, port 443 is free, and IPv6 can be lacking."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of namespaces(7)."""

GET_FLAGS, SET_FLAGS, SET_ADDRESS, DELETE_ADDRESS = 0x8913, 0x8914, 0x8916, 0x8936
"""SIOCGIFFLAGS and the others of netdevice(7)."""

UP = 1

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_network(*addresses: str, ipv6: bool = True) -> Iterator[None]:
    """This thread, and all that it starts, in a new network namespace: loopback, which has these IPv4 addresses too."""
    with open("/proc/thread-self/ns/net") as before:
        _check(_libc.unshare(NEW_NETWORK))
        try:
            _set_up(addresses, ipv6)
            yield
        finally:
            enter(before.fileno())


def enter(namespace: int) -> None:
    """This thread, and all that it starts, in the network namespace that the descriptor is of."""
    _check(_libc.setns(namespace, NEW_NETWORK))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _set_up(addresses: tuple[str, ...], ipv6: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        found = fcntl.ioctl(control, GET_FLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", found)[1]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))
        for number, address in enumerate(addresses, 1):
            told = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, SET_ADDRESS, told)
    if not ipv6:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            told = struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, "::1"), 128, socket.if_nametoindex("lo"))
            fcntl.ioctl(control, DELETE_ADDRESS, told)
