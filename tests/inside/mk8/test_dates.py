"""What `dates` promises: .NET's notation, both ways, against the standard library."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis
import pytest
from hypothesis import strategies

from provider.inside.mk8 import dates

NOW = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
MOMENTS = strategies.integers(dates.FIRST, dates.LAST)
WHOLE = (
    "o",
    "r",
    "u",
    "U",
    "F",
    "s",
    "yyyy-MM-dd HH:mm:ss",
    "dd.MM.yyyy HH:mm:ss",
    "yyyyMMddHHmmss",
    "d/M/yyyy H:m:s",
    "dddd d MMMM yyyy hh:mm:ss tt",
    "ddd d MMM yyyy h:m:s tt",
    "yyyy-MM-ddTHH:mm:ss.FFFzzz",
    "HH:mm:ss dd MM yyyy K",
)
ALIKE = {
    "yyyy-MM-dd": "%Y-%m-%d", "HH:mm:ss": "%H:%M:%S", "dddd": "%A", "ddd": "%a", "MMMM": "%B", "MMM": "%b",
    "hh tt": "%I %p", "yy": "%y", "r": "%a, %d %b %Y %H:%M:%S GMT",
}  # fmt: skip


@hypothesis.given(MOMENTS, strategies.sampled_from(WHOLE))
def test_what_was_written_can_be_read(seconds: int, form: str):
    """A format that tells a moment whole gives the same moment back."""
    assert dates.what_is_wrong(form, reading=True) is None or form in dates._STANDARD
    assert dates.read(dates.show(seconds * 10**9, form), form, NOW) == seconds


@hypothesis.given(strategies.integers(0, 4_000_000_000), strategies.sampled_from(sorted(ALIKE)))
def test_the_standard_library_writes_the_same(seconds: int, form: str):
    """Where both have a word for it, both say the same."""
    assert dates.show(seconds * 10**9, form) == datetime.fromtimestamp(seconds, UTC).strftime(ALIKE[form])


@pytest.mark.parametrize(
    ("nanoseconds", "form", "text"),
    [
        (123_456_789, "fffffff", "1234567"),
        (120_000_000, "ss.FFFFFFF", "00.12"),
        (0, "ss.FFF", "00"),
        (1_000, "o", "1970-01-01T00:00:00.0000010+00:00"),
        (-1, "u", "1969-12-31 23:59:59Z"),
    ],
)
def test_fractions(nanoseconds: int, form: str, text: str):
    """Digits of a second are cut and not rounded; those that may be left out take their dot along."""
    assert dates.show(nanoseconds, form) == text


@pytest.mark.parametrize(
    ("text", "form", "wanted"),
    [
        ("07:30", "HH:mm", datetime(2024, 5, 6, 7, 30, tzinfo=UTC)),
        ("03-04", "MM-dd", datetime(2024, 3, 4, tzinfo=UTC)),
        ("1999", "yyyy", datetime(1999, 1, 1, tzinfo=UTC)),
        ("49", "yy", datetime(2049, 1, 1, tzinfo=UTC)),
        ("50", "yy", datetime(1950, 1, 1, tzinfo=UTC)),
    ],
)
def test_what_is_left_out_is_filled_in(text: str, form: str, wanted: datetime):
    """A time without a date is of today, a date without a year of this year; the rest begins at its beginning."""
    assert dates.read(text, form, NOW) == wanted.timestamp()


@hypothesis.given(
    strategies.text(max_size=120), strategies.text(alphabet=sorted(dates.ALLOWED), min_size=1, max_size=32)
)
def test_any_text_and_any_format_come_to_an_end(text: str, form: str):
    """Nothing is raised, whatever is tried with whatever."""
    dates.guess(text, NOW)
    if dates.what_is_wrong(form) is None:
        dates.show(1_700_000_000 * 10**9, form)
    if dates.what_is_wrong(form, reading=True) is None:
        dates.read(text, form, NOW)
