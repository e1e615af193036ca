"""Which machines may be asked. A URL that came from outside must not reach what only this machine can reach."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from dalsegno.sources.model import Unusable

METADATA = frozenset(
    ip_address(text) for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds hand out credentials, besides the link-local addresses."""
CARRIER = IPv4Network("100.64.0.0/10")
STAND_INS = IPv4Network("198.18.0.0/15")
"""Formally for benchmarks; in practice what transparent proxies answer in place of public addresses."""
NAT64 = IPv6Network("64:ff9b::/96")


def check(peer: str, host: str, trusted: bool) -> None:
    """Raises Unusable when `peer`, which `host` turned out to be, may not be asked."""
    address = _plain(ip_address(peer.partition("%")[0]))
    if address.is_link_local or address in METADATA:
        raise _refused(host, "a link-local or cloud metadata address, which is never asked")
    if not trusted and _inside(address):
        raise _refused(host, "an address inside a private network, and only hosts named in the settings may be there")


def check_literal(host: str, trusted: bool) -> None:
    """The same before connecting, for a host that is already an address; names are checked once connected."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return
    check(host, host, trusted)


def _inside(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address) and address in STAND_INS:
        return False
    return (
        address.is_private
        or address.is_loopback
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or (isinstance(address, IPv4Address) and address in CARRIER)
    )


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address is only a wrapper of."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _refused(host: str, what: str) -> Unusable:
    return Unusable(f"{host} was not asked: it is {what}.", code="address_refused")
