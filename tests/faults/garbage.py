"""
An engine of a few lines, which says what a real one would, up to the point where a test has it say something else.

It speaks HTTP on a unix socket, remembers what it was asked to create and describes just that, and plays pid 1 on the
attached stream. One of its answers is damaged: cut, stalled, too long, of another shape, or no HTTP at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from provider.engine import wire
from provider.settings import Endpoint

ROUTES = (
    ("version", "GET", r"/version"),
    ("image", "GET", r"/images/.+/json"),
    ("list", "GET", r"/containers/json"),
    ("create", "POST", r"/containers/create"),
    ("attach", "POST", r"/containers/[^/]+/attach"),
    ("start", "POST", r"/containers/[^/]+/start"),
    ("inspect", "GET", r"/containers/[^/]+/json"),
    ("wait", "POST", r"/containers/[^/]+/wait"),
    ("kill", "POST", r"/containers/[^/]+/kill"),
    ("remove", "DELETE", r"/containers/[^/]+"),
)
STREAMED = ("hello", "speech")
"""What pid 1 says before, and after, it has its command."""
STEPS = (*(name for name, _, _ in ROUTES), *STREAMED)

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n\r\n"
ENDING = b"reason=exited\nexit=0\npid=7\nbackground=\noom=0\nuser_us=1\nsystem_us=1\nmax_rss_kb=1\n"
SPEECH = (wire.frame(b"B", b"\0\0\0\7"), wire.frame(b"O", b"hi\n"), wire.frame(b"Z", ENDING))

STALL = object()
"""Say nothing more, and wait until the other side goes."""
FLOOD = object()
"""Repeat what was said last, until the other side goes."""
Damage = Callable[[bytes], Sequence[Any]]
"""From the right answer to what is said in its place: bytes, then perhaps STALL or FLOOD; else it hangs up."""


def answer(status: int, value: Any = None, *, raw: bytes | None = None) -> bytes:
    body = json.dumps(value).encode() if raw is None else raw
    if status == 204:
        return b"HTTP/1.1 204 No Content\r\n\r\n"
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


def multiplexed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">BxxxI", 1, len(frame)) + frame for frame in frames)


class GarbageEngine:
    """Damaged in some steps, sound in all others."""

    def __init__(self, path: Path, damages: Mapping[str, Damage]) -> None:
        self._damages = damages
        self._created: dict[str, dict[str, Any]] = {}
        self._started: dict[str, asyncio.Event] = {}
        self._gone: dict[str, asyncio.Event] = {}
        self._path = path
        self.endpoint = Endpoint(url=f"unix://{path}", source="garbage")
        self.reached: set[str] = set()
        self.sent = 0
        """Bytes of damaged answers that somebody took."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                method, path, body = await _request(reader)
                step, name = _route(method, path)
                if step == "attach":
                    await self._converse(name, reader, writer)
                    break
                if not await self._say(step, await self._answer(step, name, body), reader, writer):
                    break
            writer.close()
            await writer.wait_closed()
        writer.transport.abort()

    async def _answer(self, step: str, name: str, body: bytes) -> bytes:
        match step:
            case "version":
                return answer(200, {"ApiVersion": "1.41", "Version": "20.10"})
            case "image":
                return answer(200, {"Id": "sha256:" + "a" * 64, "Config": {"Volumes": None}})
            case "list":
                return answer(200, [])
            case "create":
                self._created[name], self._started[name] = json.loads(body), asyncio.Event()
                self._gone[name] = asyncio.Event()
                return answer(201, {"Id": "c" * 64, "Warnings": []})
            case "inspect" if name in self._created:
                return answer(200, _described(self._created[name]))
            case "start" if name in self._created:
                self._started[name].set()
                return answer(204)
            case "wait" if name in self._created:
                await self._gone[name].wait()
                return answer(200, {"StatusCode": 0})
            case "kill" | "remove" if name in self._created:
                self._gone[name].set()
                del self._created[name]
                return answer(204)
        return answer(404, {"message": "no such container"})

    async def _converse(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if name not in self._created or not await self._say("attach", UPGRADED, reader, writer):
            return
        try:
            await self._started[name].wait()
            hello = _hello(self._created[name])
            if await self._say("hello", hello, reader, writer):
                while (await _frame(reader))[0] != ord("X"):
                    pass
                await self._say("speech", multiplexed(*SPEECH), reader, writer)
            await reader.read()
        finally:
            self._gone[name].set()
            self._created.pop(name, None)

    async def _say(self, step: str, good: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the conversation goes on."""
        if step not in self._damages:
            writer.write(good)
            return True
        self.reached.add(step)
        last = b""
        for part in self._damages[step](good):
            if part is STALL:
                while await reader.read(65536):
                    pass
            elif part is FLOOD:
                while True:
                    await self._write(last, writer)
            else:
                last = part
                await self._write(part, writer)
        return False

    async def _write(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        self.sent += len(data)


@contextlib.asynccontextmanager
async def garbage(damages: Mapping[str, Damage]) -> AsyncIterator[GarbageEngine]:
    """An engine that is up for as long as the context is."""
    with tempfile.TemporaryDirectory(prefix="garbage-") as folder:
        path = Path(folder, "s")
        engine = GarbageEngine(path, damages)
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await engine.serve(reader, writer)

        server = await asyncio.start_unix_server(serve, path)
        try:
            yield engine
        finally:
            # Whoever came at the last moment is let in, and sent away with the others; asyncio loses those whom it has
            # let in half when the server is closed.
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            await asyncio.sleep(0.02)
            server.close()
            while tasks:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            await asyncio.sleep(0.02)


def good(step: str) -> bytes:
    """About what it says when nothing is wrong, for those who damage it at a place of their choice."""
    long = {"attach": UPGRADED, "speech": multiplexed(*SPEECH), "hello": bytes(100), "inspect": bytes(6_000)}
    return long.get(step, bytes(150))


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path, _ = head.split(" ", 2)
    size = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
    return method, path, await reader.readexactly(int(size[1])) if size else b""


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, size = struct.unpack(">BI", await reader.readexactly(5))
    return kind, await reader.readexactly(size)


def _route(method: str, path: str) -> tuple[str, str]:
    plain, _, query = re.sub(r"^/v[\d.]+", "", path).partition("?")
    step = next((name for name, verb, pattern in ROUTES if verb == method and re.fullmatch(pattern, plain)), "")
    named = re.search(r"name=([^&]+)", query)
    return step, unquote(named[1]) if named else plain.split("/")[2] if plain.startswith("/containers/") else ""


def _described(body: dict[str, Any]) -> dict[str, Any]:
    mounts = [
        {"Type": "bind", "Destination": mount["Target"], "RW": not mount.get("ReadOnly"), "Propagation": "rprivate"}
        for mount in body["HostConfig"]["Mounts"]
    ]
    return {
        "Id": "c" * 64,
        "Image": body["Image"],
        "Config": body,
        "HostConfig": body["HostConfig"],
        "Mounts": mounts,
        "NetworkSettings": {"Networks": {"none": {}}},
        "State": {"Pid": 2**22 + 1},
    }


def _hello(body: dict[str, Any]) -> bytes:
    uid, gid = body["User"].split(":")
    workspace = next(mount for mount in body["HostConfig"]["Mounts"] if mount["Target"] == "/workspace")
    said = {
        "protocol": 2,
        "uid": uid,
        "gid": gid,
        "no_new_privs": 1,
        "seccomp": 2,
        "cap_eff": 0,
        "cap_bnd": 0,
        "inode": Path(workspace["Source"]).stat().st_ino,
    }
    return multiplexed(wire.frame(b"H", "".join(f"{name}={value}\n" for name, value in said.items()).encode()))
