"""The peer of a TCP connection: a user of this machine, or an address."""

from __future__ import annotations

import os
import socket
import struct
import sys
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from starburst.hosts import is_loopback

End = tuple[str, int]

#: TCP states, as the kernel numbers them.
ESTABLISHED, FIN_WAIT1, FIN_WAIT2 = 1, 4, 5
#: The kernel's connection tables.
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: linux/sock_diag.h, linux/inet_diag.h and linux/netlink.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBxI")
NO_COOKIE = b"\xff" * 8
ANSWER = struct.Struct("=BBxx4s16s16s12x3I2I")
ANY_STATE = 0xFFFFFFFF
#: Prefix length of the smallest IPv6 network that a provider gives to a customer.
PREFIX = 64


def source_of(client: End, uid: int | None) -> str:
    """The key that connections are counted by: the local user, otherwise the IPv4 address or the IPv6 /64."""
    if uid is not None:
        return f"user {uid}"
    address = ip_address(client[0].partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return f"{IPv6Address(int(address) >> (128 - PREFIX) << (128 - PREFIX))}/{PREFIX}"
    return str(address)


def peer_uid(client: End, server: End) -> int | None:
    """The user id of the peer of a connection on this machine.

    None: the peer is another machine, or it has closed its socket, which then has no owner.
    """
    if not is_loopback(client[0]):
        return None
    try:
        return _asked(client, server)
    except OSError:  # the kernel or a sandbox does not support the request
        return _listed(client, server)


def _asked(client: End, server: End) -> int | None:
    """The user id by a netlink socket-diagnosis request, which looks up one connection in constant time."""
    ends = [ip_address(host).packed.ljust(16, b"\0") for host, _ in (client, server)]
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ports = struct.pack(">HH", client[1], server[1])
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 0, ANY_STATE)
    request += ports + b"".join(ends) + b"\0" * 4 + NO_COOKIE
    header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + request, (0, 0))
        answer = kernel.recv(8192, socket.MSG_DONTWAIT)
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        (error,) = struct.unpack_from("=i", answer, HEADER.size)
        if -error == 2:  # ENOENT: no such connection
            return None
        raise OSError(-error, os.strerror(-error))
    _, state, found, source, target, *_, uid, inode = ANSWER.unpack_from(answer, HEADER.size)
    same = found == ports and [source, target] == ends
    # The kernel reads the user before the inode. A socket closed in between has neither, and user 0 is
    # root.
    return uid if same and inode and state in (ESTABLISHED, FIN_WAIT1, FIN_WAIT2) else None


def _listed(client: End, server: End) -> int | None:
    ends = (_as_listed(*client), _as_listed(*server))
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # A closed socket has no owner, and its line shows user 0.
            if (fields[1], fields[2]) == ends and int(fields[3], 16) == ESTABLISHED:
                return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    """An address and port in the format of /proc/net/tcp: the words of the address in host byte order."""
    packed = ip_address(host).packed
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
