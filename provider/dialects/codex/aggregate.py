"""
Both streams of a command as one, in the order in which they arrived. A flood keeps its beginning and its end; what was
left out between them is counted, and said in its place.
"""

from __future__ import annotations

from collections import deque
from typing import Final

HEAD_BYTES: Final = 4 * 2**20
TAIL_BYTES: Final = 4 * 2**20


class Aggregate:
    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._most_head, self._most_tail = head, tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self._most_head - len(self._head)
        self._head += data[:room]
        if rest := data[room:]:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
        while self._tail_bytes > self._most_tail:
            oldest = self._tail.popleft()
            surplus = min(len(oldest), self._tail_bytes - self._most_tail)
            if surplus < len(oldest):
                self._tail.appendleft(oldest[surplus:])
            self._tail_bytes -= surplus
            self.dropped += surplus

    @property
    def text(self) -> str:
        """Bytes that are no UTF-8 are marked as such; nothing guesses at another encoding."""
        tail = b"".join(self._tail)
        if not self.dropped:
            return bytes(self._head + tail).decode(errors="replace")
        gap = f"\n[... {self.dropped} bytes were not kept ...]\n"
        return self._head.decode(errors="replace") + gap + tail.decode(errors="replace")
