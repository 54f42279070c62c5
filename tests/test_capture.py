"""What `provider.capture` promises: the first bytes are kept, all are counted and hashed, however they come."""

from __future__ import annotations

import hashlib
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider import capture as capture_module
from provider.capture import SPILL_BYTES, Capture


@given(st.lists(st.binary(max_size=40)), st.integers(0, 100), st.integers(0, 100))
def test_any_division_of_the_same_bytes_is_kept_alike(pieces: list[bytes], cap: int, spill: int):
    """Neither the division into chunks nor the place where they are kept can be seen from outside."""
    whole = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_module, "SPILL_BYTES", spill)
        capture = Capture(cap)
        for piece in pieces:
            capture.write(piece)
    assert capture.read() == capture.read() == whole[:cap]
    assert capture.total_bytes == len(whole)
    assert capture.truncated == (len(whole) > cap)
    assert capture.sha256 == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("size", [SPILL_BYTES - 1, SPILL_BYTES, SPILL_BYTES + 1, 3 * SPILL_BYTES])
def test_the_cap_holds_exactly_on_both_sides_of_the_spill(size: int):
    """At n nothing is lost, at n+1 one byte is, in memory and on disk."""
    data = bytes(size)
    for cap in (size - 1, size, size + 1):
        capture = Capture(cap)
        capture.write(data)
        assert len(capture.read()) == min(size, cap)
        assert capture.truncated == (cap < size)


def test_reading_between_writes_changes_nothing():
    """A capture can be looked at while it grows."""
    capture = Capture(10 * SPILL_BYTES)
    for letter in b"abc":
        capture.write(bytes([letter]) * SPILL_BYTES)
        assert capture.read()[-1] == letter
    assert capture.read() == b"a" * SPILL_BYTES + b"b" * SPILL_BYTES + b"c" * SPILL_BYTES


def test_what_is_spilled_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Output on disk can be read by nobody else, and is gone with the process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    capture = Capture(10 * SPILL_BYTES)
    capture.write(bytes(2 * SPILL_BYTES))
    assert list(tmp_path.iterdir()) == []
    assert len(capture.read()) == 2 * SPILL_BYTES


def test_without_a_spool_the_first_bytes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nowhere to spill to is not the command's fault: what was kept stays, and the flag says that it is not all."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    capture = Capture(10 * SPILL_BYTES)
    capture.write(b"a" * SPILL_BYTES)
    capture.write(b"b")
    capture.write(b"c")
    assert capture.read() == b"a" * SPILL_BYTES
    assert capture.truncated
    assert capture.total_bytes == SPILL_BYTES + 2
    assert capture.sha256 == hashlib.sha256(b"a" * SPILL_BYTES + b"bc").hexdigest()


@pytest.mark.parametrize("room", [1, SPILL_BYTES // 2, SPILL_BYTES, SPILL_BYTES + 10])
def test_a_full_disk_loses_nothing_that_was_kept(room: int):
    """When the spool is full, at its first byte or later, what was kept before can still be read."""
    capture = Capture(10 * SPILL_BYTES)
    capture.write(b"a" * SPILL_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # a real full file: Python ignores SIGXFSZ
    try:
        capture.write(b"b" * 100)
        capture.write(b"c" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    capture.write(b"d" * 100)  # there is room again, but what is kept has no holes
    assert capture.read() == b"a" * SPILL_BYTES
    assert capture.truncated
    assert capture.total_bytes == SPILL_BYTES + 300
