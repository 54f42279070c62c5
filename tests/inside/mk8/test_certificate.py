"""What `certificate` promises: what OpenSSL reads of a certificate it reads the same, and noise is no certificate."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from provider.inside.mk8 import certificate

EXAMPLE = Path(__file__).parent / "verbs/example.pem"
PEM = EXAMPLE.read_text()
DER = ssl.PEM_cert_to_DER_cert(PEM[PEM.index("-----BEGIN CERT") : PEM.index("-----BEGIN PRIV")])


def test_openssl_reads_the_same():
    """Names, times, serial number and alternative names."""
    told = ssl._ssl._test_decode_cert(str(EXAMPLE))
    found = certificate.read(DER)
    assert found.serial == told["serialNumber"]
    assert found.not_before.timestamp() == ssl.cert_time_to_seconds(told["notBefore"])
    assert found.not_after.timestamp() == ssl.cert_time_to_seconds(told["notAfter"])
    assert found.names == tuple(value for _, value in told["subjectAltName"])
    assert found.subject == found.issuer == "CN=example.com, O=Test Org, C=DE"


@pytest.mark.parametrize("cut", [0, 1, 2, 10, 100, len(DER) - 1])
def test_what_is_cut_off_is_no_certificate(cut: int):
    """There is no half of one."""
    with pytest.raises(certificate.NoCertificate):
        certificate.read(DER[:cut])


@hypothesis.given(strategies.integers(0, len(DER) - 1), strategies.integers(0, 255), strategies.binary(max_size=200))
def test_damage_raises_one_error(place: int, byte: int, noise: bytes):
    """Whatever is wrong with it, it is NoCertificate."""
    for data in (DER[:place] + bytes([byte]) + DER[place + 1 :], noise, DER[:40] + noise):
        with contextlib.suppress(certificate.NoCertificate):
            certificate.read(data)


def test_control_characters_in_a_name_are_not_passed_on():
    """A name goes into the output of a step, where a line is a line."""
    assert "\n" not in certificate.read(DER.replace(b"Test Org", b"Test\nOrg")).subject
