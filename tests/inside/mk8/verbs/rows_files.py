"""Rows of the verbs about files, directories and archives."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile

from rows import FOLDER, Link, like, no, ok

FAILURE, PATH = "StepFailure", "PathViolation"
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z"
TEN = "".join(f"{number}\n" for number in range(1, 13))
OUTSIDE = {"out": Link("/etc"), "passwd": Link("/etc/passwd")}


def zipped(*entries: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED, mode: int | None = None) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = how
            if mode is not None:
                info.external_attr = mode << 16
            archive.writestr(info, content)
    return data.getvalue()


def tarred(*entries: tuple[str, bytes | None], kind: bytes | None = None, form: int = tarfile.PAX_FORMAT) -> bytes:
    """None is a directory."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=form) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.type = kind or (tarfile.DIRTYPE if content is None else tarfile.REGTYPE)
            info.size = len(content or b"")
            if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE}:
                info.linkname, info.size = "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(content or b""))
    return data.getvalue()


def lying_zip() -> bytes:
    """Says of its one entry that it is smaller than it is."""
    data = bytearray(zipped(("a.txt", b"x" * 1000)))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(signature) + offset
        data[place : place + 4] = (10).to_bytes(4, "little")
    return bytes(data)


LONG = "deep/" * 30 + "name.txt"
BYTES_1000 = {"verbs.archive.MOST_BYTES": 1000}
ENTRIES_2 = {"verbs.archive.MOST_ENTRIES": 2}
THREE = (("1", b""), ("2", b""), ("3", b""))


def bomb() -> bytes:
    """A file of one byte more than 256 MiB: one piece of zeros, compressed once and there as often as needed."""
    info = tarfile.TarInfo("a")
    info.size = 256 * 1024 * 1024 + 1
    return gzip.compress(info.tobuf()) + gzip.compress(b"\0" * 1024 * 1024) * 256 + gzip.compress(b"\0" * 10240)


FILES = (
    ok("FileRead", "a.txt", gives="hello\n", files={"a.txt": "hello\n"}),
    ok("FileRead", "/workspace/a.txt", gives="x", files={"a.txt": "x"}),
    ok("FileRead", "a.txt", gives="é", files={"a.txt": b"\xef\xbb\xbf\xc3\xa9"}),
    ok("FileRead", "a.txt", gives="aé", files={"a.txt": b"\xff\xfea\x00\xe9\x00"}),
    ok("FileRead", "a.txt", gives="aé", files={"a.txt": "aé".encode("utf-16-be").join((b"\xfe\xff", b""))}),
    ok("FileRead", "a.txt", gives="a�", files={"a.txt": b"a\xff"}),
    no("FileRead", "", fails="InvalidArgument", says="blank"),
    ok("FileRead", "link", gives="x", files={"a.txt": "x", "link": Link("a.txt")}),
    ok("FileRead", "d/link", gives="x", files={"a.txt": "x", "d/link": Link("/workspace/a.txt")}),
    ok("FileRead", "folder/a.txt", gives="x", files={"real/a.txt": "x", "folder": Link("real")}),
    no("FileRead", "a.txt", fails=FAILURE, says="/workspace/a.txt does not exist"),
    no("FileRead", "d", fails=FAILURE, says="is a directory", files={"d": FOLDER}),
    no("FileRead", "a.txt/b", fails=FAILURE, says="is not a directory", files={"a.txt": ""}),
    no("FileRead", ".", fails=FAILURE, says="the sandbox's root"),
    no("FileRead", "../x", fails=PATH, says="'..'"),
    no("FileRead", "/etc/passwd", fails=PATH, says="outside"),
    no("FileRead", "passwd", fails=PATH, says="through a link", files=OUTSIDE),
    no("FileRead", "out/passwd", fails=PATH, says="through a link", files=OUTSIDE),
    no("FileRead", "mk8.shell.env", fails=PATH, says="own configuration"),
    no("FileRead", "x", fails=PATH, says="own configuration", files={"mk8.shell.env": "", "x": Link("mk8.shell.env")}),
    no("FileRead", "loop", fails=FAILURE, says="link", files={"loop": Link("loop")}),
    no("FileRead", "a.txt", fails=FAILURE, says="FileHead", files={"a.txt": "x" * (16 * 1024 * 1024 + 1)}),
    no("FileRead", "a\nb", fails="InvalidArgument", says="control character"),
    ok("FileWrite", "a.txt", "é😀", gives="Written 2 chars to /workspace/a.txt", after={"a.txt": "é😀"}),
    ok("FileWrite", "d/e/a.txt", "x", gives="Written 1 chars to /workspace/d/e/a.txt", after={"d/e/a.txt": "x"}),
    ok(
        "FileWrite",
        "a.txt",
        "",
        gives="Written 0 chars to /workspace/a.txt",
        files={"a.txt": "old"},
        after={"a.txt": ""},
    ),
    ok("FileWrite", "a.sh", "x", gives="Written 1 chars to /workspace/a.sh", after={"a.sh": "x"}),
    ok(
        "FileWrite",
        "link",
        "x",
        gives="Written 1 chars to /workspace/link",
        files={"a.txt": "", "link": Link("a.txt")},
        after={"a.txt": "x", "link": Link("a.txt")},
    ),
    ok("FileWrite", "a.txt", "\ud800", gives="Written 1 chars to /workspace/a.txt", after={"a.txt": "�"}),
    no("FileWrite", "a.js", "x", says="write-protected", after={}),
    no("FileWrite", "Makefile", "x", says="write-protected", after={}),
    no("FileWrite", ".git/config", "x", says="write-protected", after={}),
    no("FileWrite", "link.txt", "x", says="write-protected", files={"d": FOLDER, "link.txt": Link("d/x.js")}),
    no("FileWrite", "link/config", "x", says="write-protected", files={".git": FOLDER, "link": Link(".git")}),
    no("FileWrite", "passwd", "x", fails=PATH, says="through a link", files=OUTSIDE),
    no("FileWrite", "out/x", "x", fails=PATH, says="through a link", files=OUTSIDE),
    no("FileWrite", "d", "x", fails=FAILURE, says="is a directory", files={"d": FOLDER}),
    no("FileWrite", "a.txt/b", "x", fails=FAILURE, says="not a directory", files={"a.txt": ""}, after={"a.txt": ""}),
    no("FileWrite", "n" * 300, "x", fails=FAILURE, says="too long"),
    ok(
        "FileAppend",
        "a.txt",
        "b",
        gives="Appended 1 chars to /workspace/a.txt",
        files={"a.txt": "a"},
        after={"a.txt": "ab"},
    ),
    ok("FileAppend", "d/a.txt", "b", gives="Appended 1 chars to /workspace/d/a.txt", after={"d/a.txt": "b"}),
    no("FileAppend", "d", "x", fails=FAILURE, says="is a directory", files={"d": FOLDER}),
    no("FileAppend", "a.exe", "x", says="write-protected"),
    no("FileAppend", "passwd", "x", fails=PATH, says="through a link", files=OUTSIDE),
    ok("FileDelete", "a.txt", gives="Deleted /workspace/a.txt", files={"a.txt": "", "b": ""}, after={"b": ""}),
    ok("FileDelete", "a.txt", gives="Deleted /workspace/a.txt"),
    ok("FileDelete", "no/a.txt", gives="Deleted /workspace/no/a.txt"),
    ok(
        "FileDelete",
        "link",
        gives="Deleted /workspace/link",
        files={"a.txt": "x", "link": Link("a.txt")},
        after={"a.txt": "x"},
    ),
    no("FileDelete", "d", fails=FAILURE, says="DirDelete", files={"d": FOLDER}, after={"d": FOLDER}),
    no("FileDelete", ".git/config", says="write-protected", files={".git/config": ""}),
    no("FileDelete", "package.json", says="write-protected"),
    no("FileDelete", ".", says="the workspace itself"),
    no("FileDelete", "out/passwd", fails=PATH, says="through a link", files=OUTSIDE),
    ok("FileExists", "a.txt", gives="True", files={"a.txt": ""}),
    ok("FileExists", "link", gives="True", files={"a.txt": "", "link": Link("a.txt")}),
    ok("FileExists", "link", gives="False", files={"link": Link("nowhere")}),
    ok("FileExists", "a.txt", gives="False"),
    ok("FileExists", "d", gives="False", files={"d": FOLDER}),
    ok("FileExists", ".", gives="False"),
    ok("FileExists", "a/b", gives="False", files={"a": ""}),
    ok("FileExists", "n" * 300, gives="False"),
    no("FileExists", "passwd", fails=PATH, says="through a link", files=OUTSIDE),
    ok(
        "FileList", ".", gives="/workspace/B\n/workspace/a.txt", files={"a.txt": "", "B": "", "d/c": "", "l": Link("B")}
    ),
    ok("FileList", "d", "*.txt", gives="/workspace/d/a.txt", files={"d/a.txt": "", "d/b.md": ""}),
    ok("FileList", "d", "?.[ab]", gives="/workspace/d/a.[ab]", files={"d/a.[ab]": "", "d/a.a": ""}),
    ok("FileList", "d", gives="", files={"d": FOLDER}),
    ok("FileList", "d", gives="/workspace/d/.x", files={"d/.x": ""}),
    no("FileList", "d", fails=FAILURE, says="does not exist"),
    no("FileList", "a.txt", fails=FAILURE, says="is not a directory", files={"a.txt": ""}),
    no("FileList", "d", "../*", says="no pattern"),
    no("FileList", "d", "", says="no pattern"),
    no("FileList", "out", fails=PATH, says="through a link", files=OUTSIDE),
    ok(
        "FileCopy",
        "a",
        "d/b",
        gives="Copied /workspace/a → /workspace/d/b",
        files={"a": b"\x00\xff"},
        after={"a": b"\x00\xff", "d/b": b"\x00\xff"},
    ),
    ok(
        "FileCopy",
        "a",
        "b",
        gives="Copied /workspace/a → /workspace/b",
        files={"a": "1", "b": "2"},
        after={"a": "1", "b": "1"},
    ),
    ok("FileCopy", "a", "a", gives="Copied /workspace/a → /workspace/a", files={"a": "1"}, after={"a": "1"}),
    no("FileCopy", "a", "b", fails=FAILURE, says="does not exist", after={}),
    no("FileCopy", "d", "b", fails=FAILURE, says="is a directory", files={"d": FOLDER}),
    no("FileCopy", "a", "b.js", says="write-protected", files={"a": ""}),
    no("FileCopy", "passwd", "b", fails=PATH, says="through a link", files=OUTSIDE),
    no("FileCopy", "a", "out/b", fails=PATH, says="through a link", files={**OUTSIDE, "a": ""}),
    ok("FileMove", "a", "d/b", gives="Moved /workspace/a → /workspace/d/b", files={"a": "x"}, after={"d/b": "x"}),
    ok("FileMove", "a", "b", gives="Moved /workspace/a → /workspace/b", files={"a": "1", "b": "2"}, after={"b": "1"}),
    no("FileMove", "a", "b", fails=FAILURE, says="does not exist", after={}),
    no("FileMove", "d", "b", fails=FAILURE, says="FileMove moves files", files={"d": FOLDER}),
    no("FileMove", "a", "d", fails=FAILURE, says="is a directory", files={"a": "", "d": FOLDER}),
    no("FileMove", ".git/config", "b", says="write-protected", files={".git/config": ""}),
    no("FileMove", "package.json", "b", says="write-protected", files={"package.json": ""}),
    no("FileMove", "a", "a.dll", says="write-protected", files={"a": ""}, after={"a": ""}),
    no("FileMove", ".", "b", says="the workspace itself"),
    ok(
        "FileInfo",
        "a",
        gives=like(rf"Size: 5 bytes\nCreated: {ISO}\nModified: {ISO}\nAttributes: Normal"),
        files={"a": "hello"},
    ),
    ok("FileInfo", ".a", gives=like(r"(?s)Size: 0 bytes\n.*\nAttributes: Hidden"), files={".a": ""}),
    no("FileInfo", "a", fails=FAILURE, says="does not exist"),
    no("FileInfo", "d", fails=FAILURE, says="is a directory", files={"d": FOLDER}),
    ok("FileHash", "a", gives=HELLO, files={"a": "hello"}),
    ok("FileHash", "a", "MD5", gives="5d41402abc4b2a76b9719d911017c592", files={"a": "hello"}),
    ok("FileHash", "a", "sha512", gives=like("[0-9a-f]{128}"), files={"a": "hello"}),
    no("FileHash", "a", "crc32", says="one of sha256, sha512, md5"),
    no("FileHash", "a", fails=FAILURE, says="does not exist"),
    ok("FileLineCount", "a", gives="2", files={"a": "1\n2\n"}),
    ok("FileLineCount", "a", gives="3", files={"a": "1\r\n2\r3"}),
    ok("FileLineCount", "a", gives="0", files={"a": ""}),
    no("FileLineCount", "a", fails=FAILURE, says="does not exist"),
    no("FileLineCount", "a", fails=FAILURE, says="no text in lines", files={"a": "x" * (1024 * 1024 + 1)}),
    ok("FileHead", "a", gives="1\n2\n3\n4\n5\n6\n7\n8\n9\n10", files={"a": TEN}),
    ok("FileHead", "a", "2", gives="1\n2", files={"a": TEN}),
    ok("FileHead", "a", "1000", gives=TEN.rstrip("\n"), files={"a": TEN}),
    ok("FileHead", "a", gives="", files={"a": ""}),
    no("FileHead", "a", "0", says="1 to 1000"),
    no("FileHead", "a", "1001", says="1 to 1000"),
    no("FileHead", "a", "ten", says="1 to 1000"),
    no("FileHead", "a", fails=FAILURE, says="does not exist"),
    ok("FileTail", "a", gives="3\n4\n5\n6\n7\n8\n9\n10\n11\n12", files={"a": TEN}),
    ok("FileTail", "a", "1", gives="12", files={"a": TEN}),
    no("FileTail", "a", "0", says="1 to 1000"),
    no("FileTail", "a", "1001", says="1 to 1000"),
    no("FileTail", "a", fails=FAILURE, says="does not exist"),
    ok("FileSearch", "a", "b", gives="2 match(es):\n1: ab\n3: b", files={"a": "ab\nB\nb\n"}),
    ok("FileSearch", "a", "x", gives="No matches found.", files={"a": "ab"}),
    ok("FileSearch", "a", "x", gives=like(r"(?s)500 match\(es\):\n.*\n500: x"), files={"a": "x\n" * 500}),
    ok(
        "FileSearch",
        "a",
        "x",
        gives=like(r"(?s)500 match.*\n500: x\n\.\.\. \(truncated at 500 matches\)"),
        files={"a": "x\n" * 501},
    ),
    no("FileSearch", "a", "x", fails=FAILURE, says="does not exist"),
    ok("FileSearchRegex", "a", "^b", gives="1 match(es):\n2: b", files={"a": "ab\nb\n"}),
    ok("FileSearchRegex", "a", "^x", gives="No matches found.", files={"a": "ab\nb\n"}),
    ok(
        "FileSearchRegex",
        "a",
        "x",
        gives=like(r"(?s)500 match.*\n\.\.\. \(truncated at 500 matches\)"),
        files={"a": "x\n" * 501},
    ),
    no("FileSearchRegex", "a", "(", fails=FAILURE, says="not a regular expression", files={"a": ""}),
    no("FileSearchRegex", "a", "x", fails=FAILURE, says="does not exist"),
    no("FileSearchRegex", "a", "(a+)+$", fails="Timeout", says="took more than 2 s", files={"a": "a" * 40 + "b"}),
    ok(
        "FileGlob",
        ".",
        "*.py",
        gives="2 file(s):\n/workspace/a.py\n/workspace/d/e/b.py",
        files={"a.py": "", "d/e/b.py": "", "c.txt": "", ".hidden.py": "", ".h/x.py": "", "l.py": Link("a.py")},
    ),
    ok(
        "FileGlob",
        ".",
        "*.py",
        "1",
        gives="2 file(s):\n/workspace/a.py\n/workspace/d/b.py",
        files={"a.py": "", "d/b.py": "", "d/e/c.py": ""},
    ),
    ok("FileGlob", "d", "?", gives="1 file(s):\n/workspace/d/x", files={"d/x": "", "d/xy": ""}),
    no("FileGlob", ".", "a/b", says="no pattern"),
    ok("FileGlob", ".", "*", gives="No matching files found."),
    ok(
        "FileGlob", ".", "*", gives=like(r"1000 file\(s\):(\n[^\n]+){1000}"), files={f"{n:04}": "" for n in range(1001)}
    ),
    ok("FileGlob", ".", "*", gives="No matching files found.", files={"o": Link("/etc")}),
    ok(
        "FileGlob",
        ".",
        "x",
        "5",
        gives="1 file(s):\n/workspace/1/2/3/4/5/x",
        files={"1/2/3/4/5/x": "", "1/2/3/4/5/6/x": ""},
    ),
    no("FileGlob", ".", "../*", says="no pattern"),
    no("FileGlob", ".", "*", "0", says="1 to 10"),
    no("FileGlob", ".", "*", "11", says="1 to 10"),
    no("FileGlob", "d", "*", fails=FAILURE, says="does not exist"),
    no("FileGlob", ".", "*", fails="Timeout", says="stepTimeout", files={"a": ""}, world={"deadline": 0}),
    ok("FileDiff", "a", "b", gives="Files are identical.", files={"a": "1\n2\n", "b": "1\n2"}),
    ok("FileDiff", "a", "b", gives="2 difference(s):\n2c: -2\n2c: +x\n3a: +y", files={"a": "1\n2\n", "b": "1\nx\ny\n"}),
    ok("FileDiff", "a", "b", gives="1 difference(s):\n2d: -2", files={"a": "1\n2\n", "b": "1\n"}),
    ok(
        "FileDiff",
        "a",
        "b",
        gives=like(r"(?s)501 difference\(s\):\n.*\n500d: -x\n\.\.\. \(truncated at 500 differences\)"),
        files={"a": "x\n" * 600, "b": ""},
    ),
    no("FileDiff", "a", "b", fails=FAILURE, says="/workspace/b does not exist", files={"a": "x"}),
    *(
        ok("FileMimeType", "a", gives=kind, files={"a": data})
        for data, kind in {
            b"\x89PNG\r\n\x1a\n": "image/png",
            b"\xff\xd8\xff\xe0": "image/jpeg",
            b"GIF89a": "image/gif",
            b"PK\x03\x04": "application/zip",
            b"PK\x05\x06": "application/zip",
            b"\x1f\x8b\x08": "application/gzip",
            b"%PDF-1.7": "application/pdf",
            b"RIFF....WEBP": "image/webp",
            b"OggS": "audio/ogg",
            b"fLaC": "audio/flac",
            b"BM": "image/bmp",
            b"II*\x00": "image/tiff",
            b"MM\x00*": "image/tiff",
            b"\x7fELF": "application/x-elf",
            b"MZ\x90": "application/x-msdownload",
            b"a\x01": "application/octet-stream",
            b"a\x0e": "application/octet-stream",
            b"\x1b[0m\t\n": "text/plain",
            b"hello": "text/plain",
            b"x" * 16 + b"\x00": "text/plain",
            b"": "text/plain",
        }.items()
    ),
    no("FileMimeType", "a", fails=FAILURE, says="does not exist"),
    *(
        ok("FileEncoding", "a", gives=kind, files={"a": data})
        for data, kind in {
            b"\xef\xbb\xbfa": "utf-8-bom",
            b"\xff\xfea\x00": "utf-16-le",
            b"\xfe\xff\x00a": "utf-16-be",
            b"\xff\xfe\x00\x00a\x00\x00\x00": "utf-32-le",
            b"\x00\x00\xfe\xff\x00\x00\x00a": "utf-32-be",
            b"abc": "ascii",
            b"": "ascii",
            "é".encode(): "utf-8",
            b"\xe9": "unknown",
            b"x" * 8191 + "é".encode(): "utf-8",
            b"x" * 8191 + b"\xc3": "unknown",
        }.items()
    ),
    no("FileEncoding", "a", fails=FAILURE, says="does not exist"),
    ok("FileEqual", "a", "b", gives="True", files={"a": "x", "b": "x"}),
    ok("FileEqual", "a", "b", gives="False", files={"a": "x", "b": "xy"}),
    ok("FileEqual", "a", "b", gives="False", files={"a": "x"}),
    ok("FileEqual", "a", "d", gives="False", files={"a": "x", "d": FOLDER}),
    no("FileEqual", "a", "passwd", fails=PATH, says="through a link", files={**OUTSIDE, "a": ""}),
    ok("FileChecksum", "a", f" {HELLO.upper()} ", gives="True", files={"a": "hello"}),
    ok("FileChecksum", "a", "5d41402abc4b2a76b9719d911017c592", "md5", gives="True", files={"a": "hello"}),
    ok("FileChecksum", "a", "nonsense", gives="False", files={"a": "hello"}),
    no("FileChecksum", "a", HELLO, "sha1", says="one of sha256"),
    no("FileChecksum", "a", HELLO, fails=FAILURE, says="does not exist"),
    ok("FileAge", "a", gives=like("[0-9]"), files={"a": ""}),
    no("FileAge", "a", fails=FAILURE, says="does not exist"),
    ok("FileNewerThan", "a", "60", gives="True", files={"a": ""}),
    ok("FileNewerThan", "a", "60", gives="False"),
    no("FileNewerThan", "a", "-1", says="at least 0"),
    no("FileNewerThan", "a", "soon", says="at least 0"),
    ok(
        "FileTemplate",
        "out/b.txt",
        gives="FileTemplate: /workspace/a.tpl → /workspace/out/b.txt (2 replacement(s))",
        files={"a.tpl": "{{A}} {{a}} {{B}}{{A}} {{ A }}"},
        after={"a.tpl": "{{A}} {{a}} {{B}}{{A}} {{ A }}", "out/b.txt": "1 {{a}} {{A}}1 {{ A }}"},
        world={"source": "/workspace/a.tpl", "template": {"A": "1", "B": "{{A}}"}},
    ),
    ok(
        "FileTemplate",
        "b",
        gives="FileTemplate: /workspace/a → /workspace/b (0 replacement(s))",
        files={"a": "x"},
        after={"a": "x", "b": "x"},
        world={"source": "a", "template": {}},
    ),
    no(
        "FileTemplate",
        "b",
        fails=FAILURE,
        says="does not exist",
        world={"source": "/workspace/a", "template": {"A": "1"}},
    ),
    no("FileTemplate", "b.js", says="write-protected", world={"source": "/workspace/a", "template": {"A": "1"}}),
    no("FileTemplate", "b", fails=PATH, says="outside", world={"source": "/etc/passwd", "template": {"A": "1"}}),
    no(
        "FileTemplate",
        "b",
        fails=PATH,
        says="through a link",
        files=OUTSIDE,
        world={"source": "/workspace/passwd", "template": {}},
    ),
    no(
        "FileTemplate",
        "b",
        fails=FAILURE,
        says="at most 16777216",
        files={"a": "{{A}}" * 100_000},
        world={"source": "/workspace/a", "template": {"A": "x" * 200}},
    ),
    ok(
        "FilePatch",
        "a",
        gives="FilePatch: applied 2 patch(es) to /workspace/a",
        files={"a": b"\xef\xbb\xbfone two\r\none\xff"},
        after={"a": b"\xef\xbb\xbf1 three\r\n1\xff"},
        world={"patches": (("one", "1"), ("two", "three"))},
    ),
    ok(
        "FilePatch",
        "a",
        gives="FilePatch: applied 1 patch(es) to /workspace/a",
        files={"a": b"\xff\xfe" + "né".encode("utf-16-le")},
        after={"a": b"\xff\xfe" + "nö".encode("utf-16-le")},
        world={"patches": (("é", "ö"),)},
    ),
    no(
        "FilePatch",
        "a",
        fails=FAILURE,
        says="patch 2 of 2: 'x' is not in",
        files={"a": "one"},
        after={"a": "one"},
        world={"patches": (("one", "1"), ("x", "y"))},
    ),
    no("FilePatch", "a", fails=FAILURE, says="does not exist", world={"patches": (("a", "b"),)}),
    no("FilePatch", "a.rs", says="write-protected", files={"a.rs": "a"}, world={"patches": (("a", "b"),)}),
    no("FilePatch", "passwd", fails=PATH, says="through a link", files=OUTSIDE, world={"patches": (("a", "b"),)}),
)

FOLDERS = (
    ok("DirCreate", "a/b/c", gives="Created directory /workspace/a/b/c", after={"a/b/c": FOLDER}),
    ok("DirCreate", "a", gives="Created directory /workspace/a", files={"a/x": ""}, after={"a/x": ""}),
    no("DirCreate", ".git/hooks", says="write-protected"),
    no("DirCreate", "a", fails=FAILURE, says="not a directory", files={"a": ""}),
    no("DirCreate", "out/x", fails=PATH, says="through a link", files=OUTSIDE),
    ok(
        "DirDelete",
        "a",
        gives="Deleted directory /workspace/a",
        files={"a/b/c": "", "a/d": FOLDER, "a/l": Link("../k"), "a/.x": "", "k/z": ""},
        after={"k/z": ""},
    ),
    ok(
        "DirDelete",
        "a",
        gives="Deleted directory /workspace/a",
        files={"a/l": Link("/etc"), "a/.gitignore": ""},
        after={},
    ),
    no("DirDelete", "a", fails=FAILURE, says="does not exist"),
    no("DirDelete", "a", fails=FAILURE, says="not a directory", files={"a": "x"}, after={"a": "x"}),
    no("DirDelete", ".", says="the workspace itself", files={"a": "x"}, after={"a": "x"}),
    no("DirDelete", "/workspace", says="the workspace itself"),
    no("DirDelete", ".git", says="write-protected", files={".git/config": ""}),
    no(
        "DirDelete",
        "a",
        fails=FAILURE,
        says="no script may delete",
        files={"a/b/.git/x": "", "a/c": ""},
        after={"a/b/.git/x": "", "a/c": ""},
    ),
    no("DirDelete", "a", fails=FAILURE, says="no script may delete", files={"a/MK8.shell.env": ""}),
    no(
        "DirDelete",
        "l",
        fails=FAILURE,
        says="is not a directory",
        files={"d/x": "", "l": Link("d")},
        after={"d/x": "", "l": Link("d")},
    ),
    no("DirDelete", "out", fails=PATH, says="through a link", files=OUTSIDE),
    ok("DirList", ".", gives="/workspace/a\n/workspace/b\n/workspace/d", files={"b": "", "a": Link("b"), "d/x": ""}),
    ok("DirList", "d", gives="", files={"d": FOLDER}),
    no("DirList", "d", fails=FAILURE, says="does not exist"),
    no("DirList", "out", fails=PATH, says="through a link", files=OUTSIDE),
    ok("DirExists", "d", gives="True", files={"d": FOLDER}),
    ok("DirExists", "l", gives="True", files={"d": FOLDER, "l": Link("d")}),
    ok("DirExists", ".", gives="True"),
    ok("DirExists", "a", gives="False", files={"a": ""}),
    ok("DirExists", "x", gives="False"),
    no("DirExists", "../x", fails=PATH, says="'..'"),
    ok("DirTree", ".", gives="[D] a\n  [D] b\n    [D] c\n  x\nz", files={"a/b/c/deep": "", "a/x": "", "z": ""}),
    ok("DirTree", ".", "1", gives="[D] a\nz", files={"a/x": "", "z": ""}),
    ok("DirTree", "a", "5", gives="[D] 1\n  [D] 2\n    [D] 3\n      [D] 4\n        [D] 5", files={"a/1/2/3/4/5/6": ""}),
    ok("DirTree", ".", gives="l", files={"l": Link("/etc")}),
    ok("DirTree", "d", gives="", files={"d": FOLDER}),
    no("DirTree", ".", "0", says="1 to 5"),
    no("DirTree", ".", "6", says="1 to 5"),
    no("DirTree", ".", "x", says="1 to 5"),
    no("DirTree", "d", fails=FAILURE, says="does not exist"),
    no("DirTree", ".", fails="Timeout", says="stepTimeout", files={"a": ""}, world={"deadline": 0}),
    ok("DirFileCount", ".", gives="2", files={"a": "", "b.txt": "", "d/x": "", "l": Link("a")}),
    ok("DirFileCount", ".", "*.txt", gives="1", files={"a": "", "b.txt": ""}),
    no("DirFileCount", ".", "a/*", says="no pattern"),
    no("DirFileCount", "d", fails=FAILURE, says="does not exist"),
    ok("DirEmpty", "d", gives="True", files={"d": FOLDER}),
    ok("DirEmpty", "d", gives="False", files={"d/.x": ""}),
    no("DirEmpty", "d", fails=FAILURE, says="does not exist"),
    ok(
        "DirCompare",
        "a",
        "b",
        gives="Only in a (1):\n  x\nOnly in b (1):\n  z\nCommon (1):\n  s/Y",
        files={"a/x": "", "a/s/Y": "", "b/s/y": "", "b/z": ""},
    ),
    ok("DirCompare", "a", "b", gives="Only in a (1):\n  x\nOnly in b (0):\nCommon (0):", files={"a/x": ""}),
    ok(
        "DirCompare",
        "a",
        "b",
        gives=like(r"(?s)Only in a \(201\):\n  000\n.*\n  199\n  \.\.\. \(1 more\)\nOnly in b \(0\):\nCommon \(0\):"),
        files={f"a/{n:03}": "" for n in range(201)},
    ),
    no("DirCompare", "a", "out", fails=PATH, says="through a link", files=OUTSIDE),
    ok(
        "DirHash",
        ".",
        gives=f"2 file(s):\n{HELLO}  a\n{HELLO}  d/b",
        files={"d/b": "hello", "a": "hello", "l": Link("a")},
    ),
    ok(
        "DirHash",
        ".",
        "md5",
        "*.x",
        gives="1 file(s):\n5d41402abc4b2a76b9719d911017c592  b.x",
        files={"a": "hello", "b.x": "hello"},
    ),
    ok("DirHash", "d", gives="0 file(s):", files={"d": FOLDER}),
    ok("DirHash", ".", "md5", gives=like(r"(?s)500 file\(s\):.*  0499"), files={f"{n:04}": "" for n in range(501)}),
    no("DirHash", ".", "sha1", says="one of sha256"),
    no("DirHash", ".", "md5", "..", says="no pattern"),
    no("DirHash", "d", fails=FAILURE, says="does not exist"),
)


def extracted(archive: bytes, name: str, after: dict[str, object], count: int):
    return ok(
        "ArchiveExtract",
        name,
        "d",
        gives=f"Extracted {count} files to /workspace/d",
        files={name: archive},
        after={name: archive, **after},
    )


def refused(archive: bytes, name: str, says: str, fails: str = FAILURE, patch: dict[str, int] | None = None):
    unchanged = {name: archive}
    return no("ArchiveExtract", name, "d", fails=fails, says=says, files=unchanged, after=unchanged, patch=patch or {})


GOOD = (("a.txt", b"1"), ("s/b.txt", b"2"))
ARCHIVES = (
    extracted(zipped(*GOOD), "x.zip", {"d/a.txt": "1", "d/s/b.txt": "2"}, 2),
    extracted(zipped(("s/", b""), ("a.sh", b"x"), how=zipfile.ZIP_STORED), "x.ZIP", {"d/s": FOLDER, "d/a.sh": "x"}, 1),
    extracted(tarred(*GOOD), "x.tar.gz", {"d/a.txt": "1", "d/s/b.txt": "2"}, 2),
    extracted(tarred(("./", None), ("./s", None), ("./s/a", b"x")), "x.tgz", {"d/s/a": "x"}, 1),
    extracted(tarred((LONG, b"x")), "x.tgz", {f"d/{LONG}": "x"}, 1),
    extracted(tarred((LONG, b"x"), ("é", b""), form=tarfile.GNU_FORMAT), "x.tgz", {f"d/{LONG}": "x", "d/é": ""}, 2),
    extracted(tarred((LONG[50:], b"x"), form=tarfile.USTAR_FORMAT), "x.tgz", {f"d/{LONG[50:]}": "x"}, 1),
    extracted(tarred(("a", b"1"), ("a", b"2")), "x.tgz", {"d/a": "2"}, 2),
    extracted(tarred(), "x.tgz", {"d": FOLDER}, 0),
    ok("ArchiveExtract", "x.zip", ".", gives="Extracted 1 files to /workspace", files={"x.zip": zipped(("a", b"x"))}),
    ok(
        "ArchiveExtract",
        "x.zip",
        "d",
        gives="Extracted 1 files to /workspace/d",
        files={"x.zip": zipped(("a", b"new")), "d/a": "old"},
        after={"x.zip": zipped(("a", b"new")), "d/a": "new"},
    ),
    no("ArchiveExtract", "x.gz", "d", says="*.zip, *.tar.gz, *.tgz"),
    no("ArchiveExtract", "x.rar", "d", says="*.zip, *.tar.gz, *.tgz"),
    no("ArchiveExtract", "x.zip", ".git", says="write-protected"),
    no("ArchiveExtract", "x.zip", "d", fails=FAILURE, says="does not exist", after={}),
    refused(b"nonsense", "x.zip", "no zip"),
    refused(b"nonsense", "x.tgz", "not compressed with gzip"),
    refused(gzip.compress(b"nonsense" * 100), "x.tgz", "no tar"),
    refused(tarred(*GOOD)[:-30], "x.tgz", "damaged"),
    refused(gzip.compress(b""), "x.tgz", "ends too early"),
    refused(zipped(*GOOD)[:-30], "x.zip", "no zip"),
    refused(zipped(("a.txt", b"1"), ("../b.txt", b"2")), "x.zip", "leads out of", PATH),
    refused(zipped(("a.txt", b"1"), ("/etc/x", b"2")), "x.zip", "leads out of", PATH),
    refused(zipped(("a.txt", b"1"), ("..\\b.txt", b"2")), "x.zip", "leads out of", PATH),
    refused(tarred(("a.txt", b"1"), ("s/../../b", b"2")), "x.tgz", "leads out of", PATH),
    refused(tarred(("a.txt", b"1"), ("x.js", b"2")), "x.tgz", "write-protected", "Compile"),
    refused(zipped(("a.txt", b"1"), ("s/Makefile", b"2")), "x.zip", "write-protected", "Compile"),
    refused(zipped(("a.txt", b"1"), ("s/.git/config", b"2")), "x.zip", "write-protected", "Compile"),
    refused(tarred(("a.txt", b"1"), ("mk8.shell.env", b"2")), "x.tgz", "own configuration", PATH),
    refused(tarred(("a", b""), kind=tarfile.SYMTYPE), "x.tgz", "no plain file"),
    refused(tarred(("a", b""), kind=tarfile.LNKTYPE), "x.tgz", "no plain file"),
    refused(tarred(("a", b""), kind=tarfile.FIFOTYPE), "x.tgz", "no plain file"),
    refused(tarred(("a", b""), kind=tarfile.CHRTYPE), "x.tgz", "no plain file"),
    refused(zipped(("a.txt", b"1"), ("l", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), "x.zip", "no plain file"),
    refused(zipped(("a.txt", b"1"), how=zipfile.ZIP_BZIP2), "x.zip", "no plain file"),
    refused(zipped(("a", b"1"), ("a/b", b"2")), "x.zip", "where another entry is a file"),
    refused(tarred(("a/b", b"1"), ("a", b"2")), "x.tgz", "where another entry is a file"),
    refused(zipped(*THREE), "x.zip", "more than 2 entries", patch=ENTRIES_2),
    refused(tarred(*THREE), "x.tgz", "more than 2 entries", patch=ENTRIES_2),
    refused(zipped(("a", b"x" * 600), ("b", b"x" * 401)), "x.zip", "more than 1000 bytes", patch=BYTES_1000),
    refused(tarred(("a", b"x" * 600), ("b", b"x" * 401)), "x.tgz", "more than 1000 bytes", patch=BYTES_1000),
    refused(bomb(), "x.tgz", "more than 268435456 bytes"),
    refused(lying_zip(), "x.zip", "damaged"),
    no(
        "ArchiveExtract",
        "x.zip",
        "d",
        fails=PATH,
        says="through a link",
        files={"x.zip": zipped(("l/a", b"x")), "d/l": Link("/etc")},
    ),
    no(
        "ArchiveExtract",
        "x.zip",
        "d",
        says="write-protected",
        files={"x.zip": zipped(("l/a", b"x")), ".git": FOLDER, "d/l": Link("../.git")},
    ),
    no("ArchiveExtract", "x.zip", "out", fails=PATH, says="through a link", files={"x.zip": zipped(*GOOD), **OUTSIDE}),
)

ROWS = FILES + FOLDERS + ARCHIVES
