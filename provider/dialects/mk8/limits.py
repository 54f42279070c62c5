"""The limits of a script, in one place: what the compiler refuses, and what it makes smaller."""

from __future__ import annotations

from typing import Final

MOST_OPERATIONS: Final = 1024
"""Of operations and cleanup together, written out."""
MOST_ITEMS: Final = 256
"""Of a ForEach."""
MOST_ENTRIES: Final = 64
"""Of a batch verb."""
DEEPEST: Final = 3
"""ForEach, If and Include inside each other."""
MOST_CAPTURES: Final = 16
LONGEST_LABEL: Final = 64
LONGEST_FRAGMENT_ID: Final = 128
MOST_KEYS: Final = 64
"""Of a template."""
MOST_PATCHES: Final = 32
MOST_CHARS: Final = 2**20
"""Of all texts of a script together, written out. Ours: it bounds the time that checking them takes."""

# Made smaller rather than refused.
MOST_RETRIES: Final = 10
STEP_SECONDS: Final = 30.0
"""Where a script says nothing, or zero."""
SCRIPT_SECONDS: Final = 300.0
