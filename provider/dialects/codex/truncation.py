"""
What a model sees of a command's output: both ends of it, a marker with a count between them, and a frame around it.

A budget is in bytes or in tokens of four bytes. Texts are cut between characters, in time linear in their length. The
contract's first version said nothing of a time-out in the freeform text; here both forms begin with the same sentence.
"""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from typing import Final

BYTES_PER_TOKEN: Final = 4
TIMED_OUT_CODE: Final = 124
PREVIEW_BYTES: Final = 2048
PREVIEW_LINES: Final = 64
PREVIEW_NOTICE: Final = "[... telemetry preview truncated ...]"


class Unit(enum.StrEnum):
    """What a budget counts, and what its marker says was left out."""

    BYTES = "chars"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Budget:
    amount: int
    unit: Unit = Unit.BYTES

    def __post_init__(self) -> None:
        if self.amount < 0:
            message = f"a budget of {self.amount} {self.unit}; it must be 0 or more"
            raise ValueError(message)

    @property
    def size(self) -> int:
        """In bytes."""
        return self.amount * BYTES_PER_TOKEN if self.unit is Unit.TOKENS else self.amount

    @property
    def in_history(self) -> Budget:
        """A fifth more: text that was cut once, and has its marker and header now, is not cut again."""
        return Budget(-(-self.amount * 6 // 5), self.unit)


DEFAULT: Final = Budget(10_000)
"""For model families without a budget of their own."""
CODEX_MODELS: Final = Budget(10_000, Unit.TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that came to an end."""

    output: str
    """Both streams, in the order of arrival."""
    exit_code: int
    seconds: float
    timed_out: bool = False
    remark: str = ""
    """How it ended, where the exit code alone does not say it; a line."""

    @property
    def code(self) -> int:
        return TIMED_OUT_CODE if self.timed_out else self.exit_code

    @property
    def body(self) -> str:
        """The output, with a time-out or another such ending said first."""
        late = f"command timed out after {round(self.seconds * 1000)} milliseconds\n" if self.timed_out else ""
        return late + self.remark + self.output

    @property
    def tenths(self) -> float:
        """Wall time to one decimal; a half goes up, as the original has it, and not to the even digit."""
        return math.floor(self.seconds * 10 + 0.5) / 10


def structured(ran: Ran, budget: Budget = DEFAULT) -> str:
    """Compact JSON, for commands given as a list and for patches."""
    metadata = {"exit_code": ran.code, "duration_seconds": ran.tenths}
    reply = {"output": formatted(ran.body, budget), "metadata": metadata}
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def freeform(ran: Ran, budget: Budget = DEFAULT) -> str:
    """Plain lines, for commands given as a text."""
    shown, total = truncate(ran.body, budget), count_lines(ran.body)
    lines = [f"Exit code: {ran.code}", f"Wall time: {f'{ran.tenths:.1f}'.removesuffix('.0')} seconds"]
    if count_lines(shown) != total:  # so a single line that was cut has no total; the contract has it like this
        lines.append(f"Total output lines: {total}")
    return "\n".join([*lines, "Output:", shown])


def formatted(text: str, budget: Budget) -> str:
    """Cut, with the number of lines in front when something is missing."""
    if len(_encoded(text)) <= budget.size:
        return truncate(text, budget)
    return f"Total output lines: {count_lines(text)}\n\n{truncate(text, budget)}"


def truncate(text: str, budget: Budget) -> str:
    """Keep the first and the last half of the budget; the tail has the odd byte."""
    data = _encoded(text)
    if len(data) <= budget.size:
        return data.decode()
    left = budget.size // 2
    head = _boundary_before(data, left)
    tail = _boundary_after(data, len(data) - (budget.size - left))
    if budget.unit is Unit.TOKENS:
        missing = -(-(len(data) - budget.size) // BYTES_PER_TOKEN)
    else:
        missing = len(data[head:tail].decode())
    return f"{data[:head].decode()}…{missing} {budget.unit} truncated…{data[tail:].decode()}"


def preview(text: str) -> str:
    """The beginning, for logs: 2,048 bytes or 64 lines, and a notice on a line of its own when there is more."""
    data = _encoded(text)
    kept = data[: _boundary_before(data, PREVIEW_BYTES)].decode()
    lines = kept.split("\n", PREVIEW_LINES)
    if len(lines) > PREVIEW_LINES and lines.pop():  # a newline at the very end begins no line
        return "\n".join([*lines, PREVIEW_NOTICE])
    if len(kept) == len(text):
        return kept
    return f"{kept.removesuffix(chr(10))}\n{PREVIEW_NOTICE}" if kept else PREVIEW_NOTICE


def count_lines(text: str) -> int:
    """Lines end with a newline and nothing else; the last one may do without."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")  # half a surrogate pair is nothing that a model could be sent


def _boundary_before(data: bytes, at: int) -> int:
    at = min(at, len(data))
    while 0 < at < len(data) and _continues(data[at]):
        at -= 1
    return at


def _boundary_after(data: bytes, at: int) -> int:
    while at < len(data) and _continues(data[at]):
        at += 1
    return at


def _continues(byte: int) -> bool:
    """Whether a byte is inside a UTF-8 character and does not begin one."""
    return byte & 0xC0 == 0x80  # noqa: PLR2004 - the two bits that mark it
