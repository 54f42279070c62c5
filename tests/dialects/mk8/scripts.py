"""Scripts made at random from a seed: nearly right, wrong in one place, and garbage."""

from __future__ import annotations

import json
import random
from typing import Any

from provider.inside.mk8.blacklist import HARD_CODED
from provider.inside.mk8.guards import PREDICATES
from provider.inside.mk8.templates import BLOCKED, TEMPLATES, Slot
from provider.inside.mk8.verb import HOST, NAME_PATTERN, READ, URL, WRITE
from provider.inside.mk8.verbs import VERBS
from provider.inside.mk8.words import BUILT_IN

PATHS = (
    *("a.txt", "src/b.py", "d/e/f.json", ".", "./x", "$WORKSPACE/a", "$CWD", "link", "link/x", "in/a", "up/x", "a/./b"),
    *(
        "../x",
        "a/../../b",
        "/etc/passwd",
        "/",
        "//x",
        "/workspace",
        "/workspace/x",
        "/workspace/../x",
        "",
        " ",
        "a\0b",
        "~",
    ),
    *(
        "x.js",
        ".git/config",
        "Makefile",
        "lib.so.1",
        "a\\..\\b",
        "mk8.shell.env",
        "$PREV",
        "$CAP0",
        "$ITEM",
        "é/ü",
        "-rf",
    ),
    *("loop/x", "file-out", "to-git/x", "self/self/self/../a", "self/link/x", "a" * 300, "/proc/self/root/etc", "a\nb"),
)
TEXTS = (
    *(
        "",
        "x",
        "hello world",
        "1",
        "0",
        "-1",
        "10",
        "99999999999999999999",
        "1.5",
        "nan",
        "1e400",
        "True",
        "sha256",
        "md5",
    ),
    *(
        "$PREV",
        "$CAP0",
        "$USER",
        "$BIG",
        "${X}",
        "$(x)",
        "$",
        "$$ITEM",
        "\x00",
        "\n",
        "\t",
        "é",
        "\U0001f600",
        "\u202e",
    ),
    *(
        '{"a": [1, {"b": null}]}',
        "[",
        "{}",
        "$.a[0]",
        "/a/0",
        "(a+)+$",
        "[",
        "(?i)x",
        "1+2*(3-4)",
        "((((",
        "yyyy-MM-dd",
    ),
    *(
        "2024-01-02",
        "1.2.3",
        "v1.0.0",
        "deadbeef",
        "aGVsbG8=",
        "%41%zz",
        "a,b,c",
        "asc",
        "desc",
        "numeric",
        "a\tb\nc\td",
    ),
)
URLS = (
    *(
        "https://example.com/a",
        "http://localhost/",
        "http://10.0.0.1",
        "https://u@x.com",
        "ftp://x",
        "http://[::1]/",
        "x",
    ),
    *(
        "http://example.com:8080/",
        "https://[",
        "http://2130706433",
        "https://" + "a" * 400,
        "https://é.com",
        "$PREV",
        "",
    ),
)
HOSTS = ("example.com", "localhost", "10.0.0.1", "a..b", "a.local", "x" * 300, "é.com", "", "$PREV", "::1")
PATTERNS = ("*", "*.txt", "../*", "a/b", "", "?", "[", "**", "\0")
NAMES = (
    "args",
    "verb",
    "ARGS",
    "forEach",
    "if",
    "label",
    "captureAs",
    "onFailure",
    "template",
    "patches",
    "x",
    "options",
    "",
)


GOOD_PATHS = (
    "a.txt",
    "src/b.py",
    "d/e.json",
    ".",
    "./x",
    "$WORKSPACE/a",
    "in/a",
    "self/x",
    "$STAGE/x",
    "a.zip",
    "x.gz",
)
GOOD_TEXTS = ("x", "hello world", "1", "5", "7", "$PREV", "$USER", "sha256", '{"a": [1]}', "1+2", "2024-01-02", "1.2.3")


class Writer:
    """Writes scripts. The same seed gives the same ones. Some are orderly, and some careful as well."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.orderly = self.chance(0.7)
        """The form is right, whatever the values are."""
        self.careful = self.orderly and self.chance(0.4)
        """So are most values."""

    def script(self) -> object:
        """JSON data or the text of it."""
        made: object = {"operations": self.operations(), **self.rest()}
        if not self.orderly and self.chance(0.35):
            for _ in range(self.random.randint(1, 3)):
                made = self.spoiled(made)
        if self.chance(0.1):
            text = list(json.dumps(made))
            for _ in range(self.random.randint(0, 4)):
                place = self.random.randrange(len(text) or 1)
                text[place : place + self.random.randint(0, 3)] = self.random.choice(
                    ("", '"', "{", "]", "\\", "\x00", "9" * 30)
                )
            return "".join(text)
        return made

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def operations(self) -> list[Any]:
        count = (
            self.random.choice((0 if not self.orderly else 1, 1, 1, 2, 3, 5, 8, 13))
            if not self.chance(0.01)
            else self.random.choice((300, 1024, 1025))
        )
        return [self.operation(0) for _ in range(count)]

    def rest(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.chance(0.5):
            options = {
                "maxRetries": self.random.choice((0, 3, 10**9)),
                "stepTimeout": self.random.choice(("00:00:01", "00:00:00", "9.00:00:00")),
                "failureMode": self.random.choice(("StopOnFirstError", "continueonerror", "StopAndCleanup")),
                "pipeStepOutput": self.chance(0.5),
                "maxOutputBytes": self.random.choice((1, 10**6, 10**15)),
            }
            made["options"] = dict(self.random.sample(sorted(options.items()), self.random.randint(0, len(options))))
        if self.chance(0.3):
            made["cleanup"] = [self.operation(0) for _ in range(self.random.randint(0, 3))]
        return made

    def operation(self, depth: int, *, looped: bool = False) -> dict[str, Any]:
        deepest = 3 if self.orderly else 5
        if depth < deepest and self.chance(0.08) and not (looped and self.orderly):
            items = [self.text() for _ in range(self.random.choice((0, 1, 2, 3, 257 if self.chance(0.05) else 4)))]
            return {"verb": "ForEach", "forEach": {"items": items, "body": self.operation(depth + 1, looped=True)}}
        if depth < deepest and self.chance(0.08):
            args = [self.any() for _ in range(self.random.randint(0, 2))]
            predicate = {"kind": self.random.choice(tuple(PREDICATES)), "args": args}
            return {"verb": "If", "if": {"predicate": predicate, "then": self.operation(depth + 1, looped=looped)}}
        if depth == 0 and self.chance(0.03):
            names = ("build", "BUILD") if self.orderly else ("build", "nested", "empty", "x", "$ITEM")
            return {"verb": "Include", "args": [self.random.choice(names)]}
        if self.chance(0.05):
            verb = self.random.choice(("FileWriteMany", "FileCopyMany", "FileDeleteMany"))
            counts = (2, 2, 4) if self.orderly else (0, 1, 2, 3, 4, 128, 130)
            return {"verb": verb, "args": [self.any() for _ in range(self.random.choice(counts))]}
        return {**self.step(), **({} if self.careful else self.fields())}

    def fields(self) -> dict[str, Any]:
        every = {
            "captureAs": f"cap{self.random.randrange(99)}",
            "label": f"l{self.random.randrange(99)}",
            "workingDirectory": self.random.choice(PATHS),
            "maxRetries": self.random.randint(0, 20),
        }
        if not self.orderly:
            every |= {
                "captureAs": self.random.choice(("cap0", "PREV", "a-b")),
                "label": self.random.choice(("a", "b", "c", "x" * 65)),
                "onFailure": self.random.choice(("goto:a", "goto:b", "goto:", "GOTO:C", "x")),
                "maxRetries": -1,
            }
        return {name: value for name, value in every.items() if self.chance(0.07)}

    def step(self) -> dict[str, Any]:
        if self.chance(0.25):
            return {"verb": "ProcRun", "args": self.command()}
        names = (name for name, verb in VERBS.items() if not (verb.control and self.orderly))
        verb = VERBS[self.random.choice(sorted(names))]
        most = verb.most if self.chance(0.02) else min(verb.most, 5)
        count = self.random.randint(verb.least, max(verb.least, most)) + (
            self.random.choice((-1, 1)) if self.chance(0.05) else 0
        )
        made: dict[str, Any] = {
            "verb": verb.name,
            "args": [self.argument(verb.kinds, place) for place in range(max(0, count))],
        }
        if verb.name == "FileTemplate" or (self.chance(0.01) and not self.orderly):
            made["template"] = {
                "source": self.random.choice(PATHS),
                "values": {self.text(): self.text() for _ in range(3)},
            }
        if verb.name == "FilePatch" or (self.chance(0.01) and not self.orderly):
            made["patches"] = [
                {"find": self.text(), "replace": self.text()} for _ in range(self.random.choice((0, 1, 2, 33)))
            ]
        return made

    def argument(self, kinds: tuple[str, ...], place: int) -> str:
        kind = kinds[min(place, len(kinds) - 1)] if kinds else ""
        pools = {READ: PATHS, WRITE: PATHS, URL: URLS, HOST: HOSTS, NAME_PATTERN: PATTERNS}
        if self.careful:
            pools = {READ: GOOD_PATHS, WRITE: GOOD_PATHS, URL: URLS[:1], HOST: HOSTS[:1], NAME_PATTERN: PATTERNS[:2]}
        if kind not in pools or (not self.careful and self.chance(0.1)):
            return self.text()
        return self.random.choice(pools[kind])

    def text(self) -> str:
        if self.careful:
            return self.random.choice(GOOD_TEXTS)
        kind = self.random.random()
        if kind < 0.01:
            return self.random.choice(HARD_CODED)
        if kind < 0.05:
            return self.random.choice(TEXTS) * self.random.choice((2, 100, 3000))
        if kind < 0.15:
            return "".join(
                chr(self.random.choice((32, 36, 40, 47, 65, 97, 128, 0x2028, 0x10FFFF)))
                for _ in range(self.random.randint(0, 20))
            )
        return self.random.choice(TEXTS) if kind < 0.99 or self.orderly else "\ud800"

    def any(self) -> str:
        return self.random.choice((self.text(), self.random.choice(GOOD_PATHS if self.careful else PATHS)))

    def command(self) -> list[str]:
        if self.chance(0.1):
            return [
                self.random.choice((*sorted(BLOCKED), "/usr/bin/git", "", "x")),
                *(self.any() for _ in range(self.random.randint(0, 3))),
            ]
        template = self.random.choice(TEMPLATES)
        flags = [
            word
            for name, slot in template.flags.items()
            if name in template.required or self.chance(0.3)
            for word in ([name] if slot is None else [name, self.filling(slot)])
        ]
        slots = [
            self.filling(slot) for slot in template.slots for _ in range(self.random.randint(1, 3) if slot.many else 1)
        ]
        words = [template.binary, *template.prefix, *flags, *slots]
        if not self.careful and self.chance(0.3):
            place = self.random.randrange(len(words))
            words[place : place + self.random.randint(0, 1)] = [
                self.random.choice((self.any(), "--", "-x", "--a=b", words[place].upper()))
            ]
        return words

    def filling(self, slot: Slot) -> str:
        if not self.careful and self.chance(0.1):
            return self.any()
        if slot.choices:
            return self.random.choice(slot.choices)
        if slot.kind == "number":
            return str(self.random.randint(slot.least - 1, slot.most + 1))
        if slot.words:
            words = self.random.choices((*BUILT_IN.get(slot.words, ()), "main", "x"), k=self.random.choice((1, 1, 2)))
            return " ".join(words)
        return self.random.choice(GOOD_PATHS if self.careful else PATHS)

    def spoiled(self, data: object) -> object:
        """The same with something wrong somewhere."""
        if not isinstance(data, dict | list) or not data or self.chance(0.15):
            return self.random.choice(
                (None, 1, 1.5, True, "x", [], {}, [[]], {"verb": "Echo"}, -1, 10**400, self.text())
            )
        if isinstance(data, list):
            place = self.random.randrange(len(data))
            return [self.spoiled(item) if at == place else item for at, item in enumerate(data)]
        name = self.random.choice(sorted(data))
        if self.chance(0.1):
            return {**data, self.random.choice(NAMES): data[name]}
        return {key: self.spoiled(value) if key == name else value for key, value in data.items()}
