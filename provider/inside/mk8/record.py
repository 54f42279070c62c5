"""What is told of a step: its record in the script's result, in the contract's shape, and how long texts may get."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from .compiled import Step
from .errors import Mk8Error
from .verb import Done

Status = Literal["Succeeded", "Failed", "Skipped"]

_ESCAPED: Final = 6  # the most bytes of JSON that one byte of text becomes
_TICKS: Final = 10_000_000  # a second, as the origin counts


def make_record(
    step: Step,
    status: Status,
    *,
    index: int,
    cleanup: bool,
    done: Done | None,
    error: Mk8Error | None,
    attempts: int,
    seconds: float,
) -> dict[str, Any]:
    failed = error if status == "Failed" else None
    output = done.output if done is not None else failed.output if failed is not None else None
    text = str(failed) if failed is not None else (done.error or None) if done is not None else None
    return {
        "stepIndex": index,
        "verb": step.verb,
        "status": status,
        "success": status != "Failed",
        "output": output,
        "error": text,
        "errorCategory": None if failed is None else failed.category,
        "exitCode": done.exit_code if done is not None else failed.exit_code if failed is not None else None,
        "attempts": attempts,
        "duration": timespan(seconds),
        "cleanup": cleanup,
        "label": step.label,
    }


def cut(record: dict[str, Any], *, output_bytes: int, error_bytes: int) -> None:
    """Keep the ends of its texts."""
    for name, limit in (("output", output_bytes), ("error", error_bytes)):
        if record[name] is not None:
            record[name] = tail(record[name], limit)


def fit(record: dict[str, Any], left: int) -> int:
    """Cut its texts to what is left for all, as JSON, and give what is left after them."""
    size = _size(record)
    if size > left:
        half = left // _ESCAPED // 2
        cut(record, output_bytes=half, error_bytes=half)
        size = _size(record)
    return max(0, left - size)


def _size(record: dict[str, Any]) -> int:
    texts = (record["output"], record["error"])
    return sum(len(json.dumps(text, ensure_ascii=False).encode()) - 2 for text in texts if text)


def tail(text: str, limit: int) -> str:
    """The end of a text, in whole characters, of at most so many bytes of UTF-8."""
    if text.isascii():
        return text if len(text) <= limit else text[len(text) - limit :]
    data = text.encode("utf-8", "backslashreplace")  # a file's name can have half a surrogate pair in it
    kept = data[max(0, len(data) - limit) :]
    return kept.decode("utf-8", "ignore")  # which is the rest of a character that was cut


def timespan(seconds: float) -> str:
    """As .NET writes one: `hh:mm:ss.fffffff`, with days before it where there are some."""
    whole, ticks = divmod(round(max(0.0, seconds) * _TICKS), _TICKS)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}.' if days else ''}{hour:02}:{minute:02}:{second:02}.{ticks:07}"
