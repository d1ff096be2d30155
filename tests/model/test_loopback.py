"""What counts as this machine itself."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.model.loopback import is_loopback

ADDRESSES_V4 = st.ip_addresses(v=4)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"],
)
def test_this_machine_by_name_and_by_each_of_its_addresses(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "10.0.0.1",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "::2",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "example.org",
        "127.0.0.1.example.org",
        "localhost.example.org",
        "app.localhost",
        "127.1",
        "[::1]",
        "127.0.0.1:1994",
    ],
)
def test_nothing_that_another_machine_could_be(host: str) -> None:
    assert not is_loopback(host)


@given(ADDRESSES_V4)
def test_an_address_is_judged_the_same_where_an_ipv6_socket_shows_it(address: ipaddress.IPv4Address) -> None:
    assert is_loopback(f"::ffff:{address}") is is_loopback(str(address)) is (int(address) >> 24 == 127)
