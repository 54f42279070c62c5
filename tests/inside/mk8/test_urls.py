"""URLs, hosts and addresses that a script may talk to."""

from __future__ import annotations

import pytest

from provider.inside.mk8.errors import UrlViolation
from provider.inside.mk8.urls import check_host, check_url, is_private


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTP://Example.COM/A?b=C#d", "http://example.com/A?b=C"),
        ("https://example.com:443/x", "https://example.com/x"),
        ("http://example.com:80", "http://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://example.com:/x", "https://example.com/x"),
        ("https://example.com.", "https://example.com/"),
        ("https://example.com?x=1", "https://example.com/?x=1"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://example.com/ä/ö", "https://example.com/%C3%A4/%C3%B6"),
        ("https://local.example.com/", "https://local.example.com/"),
    ],
)
def test_urls_in_their_normal_form(text, normal):
    """Scheme and host in lower case, no port of its own, no fragment, ASCII."""
    assert check_url(text) == normal


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "example.com",
            "/x",
            "ftp://example.com",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https:/example.com",
        ),
        *(
            "https://",
            "https:///x",
            "https://?x",
            "https://:80/",
            "https://user@example.com",
            "https://u:p@example.com",
        ),
        *(
            "https://example.com:22",
            "https://example.com:8080/",
            "https://example.com:0443x/",
            "http://example.com:-80/",
        ),
        *("http://localhost", "http://LOCALHOST/", "http://localhost./", "http://a.localhost/", "http://localhost:80/"),
        *("http://metadata.google.internal/", "http://metadata.internal/", "http://169.254.169.254/latest"),
        *("http://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://0.0.0.0/"),
        *(
            "http://2130706433/",
            "http://0x7f000001/",
            "http://127.1/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://1.0x10/",
        ),
        *("http://exa mple.com/", "http://example.com/a b", "http://example.com\\@evil/", "http://example.com/\n"),
        *(
            "http://exämple.com/",
            "http://ⓛocalhost/",
            "http://a..b/",
            "http://-a.com/",
            "http://a-.com/",
            "http://[::1/",
        ),
        *("http://[fe80::1%25eth0]/", "http://" + "a" * 300 + ".com/", "http://example.com/" + "a" * 9000),
    ],
)
def test_9_17_urls_that_are_refused(text):
    """Section 9, item 17, by the text: schemes, users, ports, private hosts and addresses in any spelling."""
    with pytest.raises(UrlViolation, match=r"^mk8\.shell URL violation: "):
        check_url(text)


@pytest.mark.parametrize("text", ["example.com", "EXAMPLE.com.", "a-b.c1", "localhost.example.com", "a" * 63 + ".org"])
def test_hosts(text):
    """Names are given in lower case, without the last dot."""
    assert check_host(text) == text.lower().removesuffix(".")


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", "a" * 254, ".".join(["abcdefgh"] * 29), "a" * 64 + ".com", "-a.com", "a-.com", "a_b.com"),
        *("10.0.0.1", "8.8.8.8", "::1", "[::1]", "2130706433", "0x7f.1", "1.2.3"),
        *("localhost", "LocalHost.", "metadata.google.internal", "metadata.internal", "x.localhost"),
        *("a.internal", "a.local", "a.corp", "a.lan", "a.intranet", "a.private", "A.LOCAL."),
        *("exämple.com", "a b", "a/b", "a:80", "user@a.com", "a\0b"),
    ],
)
def test_hosts_that_are_refused(text):
    """Addresses, private names, and what is no name."""
    with pytest.raises(UrlViolation):
        check_host(text)


def test_a_host_of_253_characters():
    """The limit itself is allowed."""
    host = ".".join(["abcdefgh"] * 28) + "." + "a"
    assert len(host) == 253
    assert check_host(host) == host
    with pytest.raises(UrlViolation):
        check_host(host + "a")


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255"),
        *("198.51.100.1", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1", "2002:0a00:0001::", "2001::1"),
        *("64:ff9b:1::1", "", "example.com", "127.1", "010.0.0.1", "1.2.3.4.5", "1.2.3.4 "),
    ],
)
def test_private_addresses(address):
    """Private, reserved, wrapped in IPv6, or unreadable."""
    assert is_private(address)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "8.8.8.8",
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
        ),
        *("2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:0808:0808::1"),
    ],
)
def test_public_addresses(address):
    """The neighbours of private networks are not private."""
    assert not is_private(address)
