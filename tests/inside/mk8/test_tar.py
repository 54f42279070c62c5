"""What `tar` promises: what tarfile writes it reads the same, and what strangers write does no harm."""

from __future__ import annotations

import gzip
import io
import tarfile

import hypothesis
import pytest
from hypothesis import strategies

from provider.inside.mk8.errors import StepFailure
from provider.inside.mk8.tar import entries

NAMES = strategies.text(alphabet="ab/.é-", min_size=1, max_size=300).filter(
    lambda name: name.strip("/") and not name.endswith("/")
)
FORMS = strategies.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def packed(members: list[tuple[str, bytes]], form: int) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


@hypothesis.given(strategies.lists(strategies.tuples(NAMES, strategies.binary(max_size=2000)), max_size=4), FORMS)
def test_what_tarfile_writes_is_read_the_same(members: list[tuple[str, bytes]], form: int):
    """Names of any length and letters, in all three formats."""
    try:
        data = packed(members, form)
    except ValueError:
        hypothesis.reject()  # too long a name for this format
    found = [(entry.name, b"".join(entry.content)) for entry in entries(io.BytesIO(data))]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert found == [(member.name, archive.extractfile(member).read()) for member in archive]


@hypothesis.given(strategies.binary(max_size=3000), strategies.integers(0, 10_000), strategies.integers(0, 255))
def test_damage_is_a_failure_and_nothing_else(noise: bytes, place: int, byte: int):
    """Neither noise nor one wrong byte raises anything but StepFailure."""
    good = bytearray(gzip.decompress(packed([("a/" * 80 + "b", b"x" * 600)], tarfile.PAX_FORMAT)))
    good[place % len(good)] = byte
    for data in (noise, gzip.compress(noise), gzip.compress(bytes(good))):
        try:
            for entry in entries(io.BytesIO(data)):
                for _ in entry.content:
                    pass
        except StepFailure:
            pass


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize(
    "data",
    [
        header(tarfile.XHDTYPE, 70_000) + b"x" * 70_144,
        (header(tarfile.XHDTYPE, 0)) * 9 + header(tarfile.REGTYPE, 0),
        header(tarfile.XHDTYPE, 512) + b"9 broken=".ljust(512, b"x") + header(tarfile.REGTYPE, 0),
        header(tarfile.XHDTYPE, 13) + b"13 size=abcd\n".ljust(512, b"\0") + header(tarfile.REGTYPE, 0),
    ],
    ids=["a long header", "many headers", "a broken record", "a size that is none"],
)
def test_headers_have_limits(data: bytes):
    """What stands before an entry can neither fill the memory nor go on for ever."""
    with pytest.raises(StepFailure):
        list(entries(io.BytesIO(gzip.compress(data + b"\0" * 1024))))


def test_a_sparse_file_is_no_file():
    """What it says of itself is not what it holds."""
    record = b"22 GNU.sparse.major=1\n"
    data = header(tarfile.XHDTYPE, len(record)) + record.ljust(512, b"\0") + header(tarfile.REGTYPE, 0) + b"\0" * 1024
    assert [entry.kind for entry in entries(io.BytesIO(gzip.compress(data)))] == ["other"]
