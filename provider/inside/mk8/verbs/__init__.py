"""All 159 verbs, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..verb import Verb
from . import archive, control, files, folders, json_, network, system, text, values

_TABLES: Final = (files, folders, network, text, json_, system, values, archive, control)

VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for table in _TABLES for verb in table.VERBS}
