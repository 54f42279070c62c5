"""
apply_patch: reads a patch, finds its places in the files, and changes all of them or none.

    grammar      text -> operations                                    pure
    paths        a path as written -> a place below the root           pure
    matching     a file's bytes and an update -> its new bytes         pure
    tree         operations -> changes, by reading                     no side effects
    journal      changes -> files, all or none
    upstream     operations -> files one after the other (`--compat`)
    command      the command line, and its answer in JSON

Runs inside a sandbox, with nothing but Python, as

    python3 -I -S -B -X utf8 -c 'import sys; sys.path.insert(0, FOLDER_ABOVE); from apply_patch import program;
                                 sys.exit(program())' [OPTION ...] [PATCH]

and the host imports it to read patches. Since a patch is mostly the start of the interpreter, modules that take long to
import are not used here.

Compatibility mode is upstream's: in place, LF for what is replaced, a newline at the end, context lines in the patch's
spelling, UTF-8 only. The default keeps each file's terminators, BOM, last newline, mode, context lines and odd bytes.
"""

from __future__ import annotations

from .command import NOT_UTF8, ONE_ARGUMENT, USAGE, apply, main, program
from .grammar import WHITE, Add, Chunk, Delete, Operation, ParseError, PatchError, Update, read_patch
from .journal import Recovered, recover
from .matching import new_content
from .paths import OUTSIDE, ApplyError, Root, Target, resolve
from .tree import Change, compute

__all__ = [
    "NOT_UTF8",
    "ONE_ARGUMENT",
    "OUTSIDE",
    "USAGE",
    "WHITE",
    "Add",
    "ApplyError",
    "Change",
    "Chunk",
    "Delete",
    "Operation",
    "ParseError",
    "PatchError",
    "Recovered",
    "Root",
    "Target",
    "Update",
    "apply",
    "compute",
    "main",
    "new_content",
    "program",
    "read_patch",
    "recover",
    "resolve",
]
