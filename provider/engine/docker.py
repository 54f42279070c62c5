"""
Sandboxes as Docker containers. The only importer of `docker` and `tenacity`.

The SDK is synchronous, so its calls run in worker threads, each with its own deadline; the stream of a
container goes through `attach.py`, natively. The order create, attach, start, attest is fixed: attached later,
the first bytes could be lost; attested earlier, there would be no process to look at. Nothing is ever executed
in, or copied out of, a living container through the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import signal
import socket
import struct
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

import docker
import docker.errors
import docker.tls
import requests
import tenacity

from provider.assets import Assets
from provider.background import Background
from provider.engine.ask import MAX_ANSWER, Line
from provider.engine.attach import Attachment, attach
from provider.engine.attest import attest_clean, attest_engine, attest_host, attest_init
from provider.engine.news import News
from provider.engine.owner import OWNER_LABEL, is_dead, this_owner
from provider.engine.processors import Processors, count
from provider.errors import DisposeFailed, EngineUnavailable, ImageMissing, PlanRejected, SandboxError, SandboxLost
from provider.gvisor import GVISOR
from provider.model import Begun, BoxPlan, Container, Ending, EndReason, ExecPlan, Image, Message, Process
from provider.plan import container_request
from provider.settings import Endpoint

T = TypeVar("T")

_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_IMAGE_NAME = re.compile(r"[A-Za-z0-9][\w.\-/:@]*", re.ASCII)

_THREADS = 32
_OLDEST_API = (1, 41)
"""The first that takes a private cgroup namespace."""
_WAIT_SECONDS = 2
_PATIENT_SECONDS = 15
"""What a container has to go by itself, and again after a kill. It takes 0.1 s, and more where many go at once."""
_REMOVE_SECONDS = 20.0
_PIECE = 64 * 1024
_ILLEGIBLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading an answer of an unexpected form raises, in the SDK and here."""
_EVENT_SECONDS = 1.0
_DOUBT_SECONDS = 1.0
"""What a create that was never answered may still take, once its engine answers again."""
_TERMINATE = {"canceled": b"c", "output_limit": b"o", "timed_out": b"t", "workspace_quota": b"w", "exited": b"c"}

_again = tenacity.retry(
    retry=tenacity.retry_if_exception_type(EngineUnavailable),
    stop=tenacity.stop_after_attempt(3),
    wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
    reraise=True,
)
"""Only around calls that may be made twice: look-ups and removal. Never around create or start."""


class DockerEngine:
    """One Docker Engine. Connects on first use."""

    def __init__(self, endpoint: Endpoint, assets: Assets, *, timeout: float = 30.0) -> None:
        self.endpoint = endpoint
        self._assets = assets
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine")
        self._waiters = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine-wait")
        """Their own, for those who wait for an end must not keep others from a start."""
        self._line = Line(endpoint)
        self._news = News(endpoint, timeout=timeout)
        self._client: docker.APIClient | None = None
        self._connecting = threading.Lock()
        self._owner = this_owner()
        self.processors = Processors()
        self._undoing = Background()
        self._doubtful: set[str] = set()
        """Names of containers that may exist: an engine that fell silent may yet do what it was asked."""

    async def image(self, name: str) -> Image:
        """
        Pin a name to content.

        Raises:
            ImageMissing: it is not on the engine.
        """
        if not _IMAGE_NAME.fullmatch(name) or ".." in name:  # it becomes part of a path
            message = f"{name!r} is no name of an image"
            raise ImageMissing(message)
        if known := await self._news.known(name):
            return known
        mark = self._news.mark
        status, found = await self._ask(f"/images/{name}/json")
        if status == HTTPStatus.NOT_FOUND:
            message = f"image {name!r} is not on the engine; build it with `make images`, or pull it"
            raise ImageMissing(message)
        with _legible((status, found)):
            volumes = tuple(sorted((found.get("Config") or {}).get("Volumes") or {}))
            content = found["Id"]
            if not _IMAGE_ID.fullmatch(content):
                raise ValueError(content)
            image = Image(name=name, id=content, volumes=volumes)
        self._news.keep(image, mark)
        return image

    @_again
    async def _ask(self, path: str) -> tuple[int, Any]:
        return await self.in_time(self._line.get(path))

    async def open(self, box: BoxPlan) -> DockerSandbox:
        """
        Create, attach, start and attest.

        Raises:
            PlanRejected: the engine would not apply the whole plan.
            EngineUnavailable: it did not answer.
            SandboxLost: the container went away.
        """
        name = f"sandbox-{uuid.uuid4().hex}"
        profile = self._assets.profile(box.seccomp, box.runtime).text
        request = container_request(box, profile=profile, labels={OWNER_LABEL: self._owner})
        sandbox = DockerSandbox(self, Container.planned(box, name), cpus=box.limits.cpus)
        steps = [asyncio.ensure_future(self._create(name, request))]
        try:
            await asyncio.shield(steps[0])
            sandbox.attachment = await self.in_time(attach(self.endpoint, self._api_version, name))
            steps.append(asyncio.ensure_future(self._start(sandbox)))
            await asyncio.shield(steps[1])
            await self._attest(sandbox, box, request)
        except BaseException:
            # Also when cancelled. Not awaited: the caller hears at once, for with its engine gone this takes a minute.
            self._undoing.add(self._undo(sandbox, name, steps))
            raise
        if self._doubtful:
            self._undoing.add(self._look_again())
        return sandbox

    async def _undo(self, sandbox: DockerSandbox, name: str, steps: Sequence[asyncio.Task[None]]) -> None:
        await asyncio.wait(steps)  # a call that is under way in its thread cannot be called back
        if isinstance(steps[0].exception(), EngineUnavailable):
            self._doubtful.add(name)  # gone or never made, the engine may make it yet
        try:
            await sandbox.dispose()
        except DisposeFailed:
            self._doubtful.add(name)

    async def _look_again(self) -> None:
        for name in tuple(self._doubtful):
            with contextlib.suppress(DisposeFailed):
                await self.remove(name)
                self._doubtful.discard(name)

    async def _create(self, name: str, request: Mapping[str, Any]) -> None:
        with _refusal_as(PlanRejected, "create the sandbox"):
            made = await self._call("create_container_from_config", request, name=name)
        with _legible(made):
            warnings = "; ".join(made.get("Warnings") or ())
        if warnings:
            message = f"the engine warns about the plan: {warnings}"
            raise PlanRejected(message)

    async def _start(self, sandbox: DockerSandbox) -> None:
        with _refusal_as(PlanRejected, "start the sandbox"):
            await self._call("start", sandbox.container.id)
        sandbox.is_started = True

    async def _attest(self, sandbox: DockerSandbox, box: BoxPlan, request: Mapping[str, Any]) -> None:
        assert sandbox.attachment is not None
        with _refusal_as(SandboxLost, "describe the sandbox"):
            reported, hello = await asyncio.gather(
                self._look_up("inspect_container", sandbox.container.id), self.in_time(sandbox.attachment.hello)
            )
        with _legible(reported):
            attest_engine(request, reported)
            name, pid, runtime = reported["Id"], reported["State"]["Pid"], reported["HostConfig"].get("Runtime")
            sandbox.host_pid = pid if attest_host(box, name, pid) else None
        attest_init(box, hello)
        sandbox.processors_there = count(hello)
        sandbox.container = replace(
            sandbox.container,
            id=name,
            runtime=runtime or "",
            attested=("engine", "init", "host") if sandbox.host_pid else ("engine", "init"),
        )

    async def see_off(self, container: str, *, stuck: bool) -> None:
        """
        Wait until a container whose pid 1 was told to end has removed itself, and help where it does not.

        Raises:
            DisposeFailed: it may still exist.
        """
        # Not sooner: with kills or removals by us beside the engine's own, entries "Removal In Progress" were left that
        # nobody could remove (Docker 20.10: 35 of 500 at 50 at once; none since). Why, was not shown.
        if not stuck and await self._is_gone_within(container, _PATIENT_SECONDS):
            return
        try:
            with contextlib.suppress(docker.errors.APIError):  # it has ended, or goes already
                await self._call("kill", container)
        except SandboxError as error:
            if stuck:  # somebody waits, and the engine has had its time
                message = f"container {container} could not be killed: {error}"
                raise DisposeFailed(message) from error
        if not await self._is_gone_within(container, _PATIENT_SECONDS):
            await self.remove(container)

    async def _is_gone_within(self, container: str, seconds: float) -> bool:
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            # Asked anew now and then: one wait in a hundred misses the removal that it waits for (under load).
            if await self._is_seen_to_go(container):
                return True
        return False

    async def _is_seen_to_go(self, container: str) -> bool:
        def wait() -> None:
            with _translated(self.endpoint):
                self._connected().wait(container, timeout=_WAIT_SECONDS, condition="removed")

        try:
            await asyncio.get_running_loop().run_in_executor(self._waiters, wait)
        except docker.errors.NotFound:
            return True
        except (docker.errors.APIError, SandboxError):
            await asyncio.sleep(0.1)  # an engine that is not there fails at once
            return False
        return True

    async def remove(self, container: str) -> None:
        """
        Remove a container, whatever its state, and see that it is gone.

        Raises:
            DisposeFailed: it may still exist.
        """
        try:
            async with asyncio.timeout(_REMOVE_SECONDS):
                while await self._is_left(container):  # noqa: ASYNC110 - the engine does not say when it is done
                    await asyncio.sleep(0.02)
        except (TimeoutError, SandboxError) as error:
            message = f"container {container} could not be removed: {str(error) or 'it did not go in time'}"
            raise DisposeFailed(message) from error

    async def _is_left(self, container: str) -> bool:
        try:
            await self._look_up("remove_container", container, v=True, force=True)  # twice is as good as once
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError:
            pass  # 409: already being removed; 500: it ended at the same moment. Ask again
        return True

    async def sweep(self) -> tuple[str, ...]:
        """Remove what dead owners left, and nothing else."""
        with _refusal_as(EngineUnavailable, "list containers"):
            found = await self._look_up("containers", all=True, filters={"label": OWNER_LABEL})
        with _legible(found):
            dead = [item["Id"] for item in found if is_dead(item["Labels"][OWNER_LABEL])]
        await asyncio.gather(*(self.remove(container) for container in dead))
        return tuple(dead)

    async def ran_out_of_memory(self, container: str) -> bool:
        """Whether the kernel killed for want of memory in a container, which may be gone by now."""
        client = self._connected()
        # To the future, for the event may come after the end; the engine waits that long with the rest of its answer.
        times = {"since": "0", "until": f"{time.time() + _EVENT_SECONDS:.3f}"}
        filters = json.dumps({"container": [container], "event": ["oom"]})
        with _refusal_as(EngineUnavailable, "tell its events"):
            answer = await self._call(
                "get", f"{client.base_url}/v{client.api_version}/events", params={**times, "filters": filters}
            )
        return answer.status_code == HTTPStatus.OK and bool(answer.content.strip())

    async def facts(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The engine's own `version` and `info`."""
        with _refusal_as(EngineUnavailable, "describe itself"):
            version, info = await asyncio.gather(self._look_up("version"), self._look_up("info"))
        return version, info

    async def close(self) -> None:
        """
        Wait until what failed to open is gone, then hang up.

        Raises:
            DisposeFailed: a container may be left.
        """
        await self._undoing.settle()
        if self._doubtful:
            await asyncio.sleep(_DOUBT_SECONDS)
            await self._look_again()
        self._line.close()
        self._news.close()
        client, self._client = self._client, None
        if client:
            await asyncio.get_running_loop().run_in_executor(self._threads, client.close)
        self._threads.shutdown(wait=False)
        self._waiters.shutdown(wait=False)
        if self._doubtful:
            message = f"the engine did not say whether these exist: {', '.join(sorted(self._doubtful))}"
            self._doubtful.clear()
            raise DisposeFailed(message)

    @property
    def _api_version(self) -> str:
        assert self._client is not None
        return str(self._client.api_version)

    @_again
    async def _look_up(self, method: str, *args: Any, **options: Any) -> Any:
        return await self._call(method, *args, **options)

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """One SDK call in a thread. The engine's own answers (404, 409, 500) pass through; all else is translated."""

        def call() -> Any:
            with _translated(self.endpoint):
                return getattr(self._connected(), method)(*args, **options)

        work = asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await self.in_time(work)

    async def in_time(self, work: Awaitable[T]) -> T:
        """Await the engine's answer, within its time. Raises EngineUnavailable."""
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError as error:
            message = f"the engine at {self.endpoint.url} did not answer within {self._timeout:g} s"
            raise EngineUnavailable(message) from error

    def _connected(self) -> docker.APIClient:
        with self._connecting:
            if self._client is None:
                self._client = _connect(self.endpoint, self._timeout)
            return self._client


class DockerSandbox:
    """One container: created, attested, waiting. Serves one command, or a session's one after the other."""

    def __init__(self, engine: DockerEngine, container: Container, *, cpus: float) -> None:
        self._engine = engine
        self._name = container.id
        self._gone = False
        self._cpus = cpus
        self._processors: tuple[int, ...] = ()
        self.processors_there = 0
        """How many pid 1 could use."""
        self.host_pid: int | None = None
        """Of pid 1, where it is to be seen from here."""
        self.is_started = False
        """From then on it removes itself when it ends."""
        self.container = container
        self.attachment: Attachment | None = None

    @property
    def is_alive(self) -> bool:
        return not self._gone and self._attached.is_open

    def mark_warm(self) -> None:
        self.container = replace(self.container, warm=True)

    async def release(self, plan: ExecPlan, *, stdin: bool) -> None:
        offer = self._engine.processors.offer(self._cpus, self.processors_there)

        def note(places: tuple[int, ...]) -> None:
            if offer:
                self._processors = self._engine.processors.take(offer, places)

        # gVisor lets a command open pid 1's descriptors, and so speak in its place.
        sealed = self.container.runtime == GVISOR
        self._attached.release(plan, stdin=stdin, processors=offer, on_begun=note, sealed=sealed)

    def messages(self) -> AsyncIterator[Message]:
        return self._attached.messages() if self.container.runtime != GVISOR else self._messages_of_gvisor()

    async def _messages_of_gvisor(self) -> AsyncIterator[Message]:
        """There the kernel can only kill the whole sentry, and no pid 1 is left to tell; the engine knows."""
        begun: Begun | None = None
        try:
            async for message in self._attached.messages():
                begun = message if isinstance(message, Begun) else begun
                yield message
        except SandboxLost:
            if begun is None or not await self._engine.ran_out_of_memory(self.container.id):
                raise
            yield Ending(reason="exited", signal=signal.SIGKILL, pid=begun.pid, oom_kills=1)

    def grant(self, size: int) -> None:
        self._attached.grant(size)

    async def write_stdin(self, data: bytes) -> None:
        await self._attached.write_stdin(data)

    def resize(self, rows: int, columns: int) -> None:
        self._attached.send(b"W", struct.pack(">HH", rows, columns))

    def signal(self, number: int, pid: int | None = None) -> None:
        self._attached.send(b"K", bytes([number]) + (b"" if pid is None else struct.pack(">I", pid)))

    async def processes(self) -> tuple[Process, ...]:
        return await self._engine.in_time(self._attached.processes())

    def terminate(self, reason: EndReason) -> None:
        self._attached.send(b"T", _TERMINATE[reason])

    async def renew(self) -> None:
        self._leave_processors()
        report = await self._engine.in_time(self._attached.scrubbed())
        attest_clean(report, self.host_pid)
        self.container = replace(self.container, served=self.container.served + 1)

    async def dispose(self, *, stuck: bool = False) -> None:
        """Close the stream first: pid 1 ends everything, and no kill can hang on a stream that nobody reads."""
        self._leave_processors()
        if self._gone:
            return
        if self.attachment:
            self.attachment.close()
        if self.is_started:
            await self._engine.see_off(self._name, stuck=stuck)
        else:
            await self._engine.remove(self._name)
        self._gone = True

    def _leave_processors(self) -> None:
        self._engine.processors.leave(self._processors)
        self._processors = ()

    @property
    def _attached(self) -> Attachment:
        assert self.attachment is not None
        return self.attachment


def tls_config(endpoint: Endpoint) -> docker.tls.TLSConfig | bool:
    """The endpoint's certificates as the SDK takes them."""
    folder = endpoint.tls
    if folder is None:
        return False
    pair = (str(folder / "cert.pem"), str(folder / "key.pem"))
    return docker.tls.TLSConfig(client_cert=pair, ca_cert=str(folder / "ca.pem"), verify=True)


class _Client(docker.APIClient):
    """The SDK's, which would take an answer of any length."""

    def send(self, request: Any, **options: Any) -> Any:
        response = super().send(request, **{**options, "stream": True})
        body = bytearray()
        for piece in response.iter_content(_PIECE):
            body += piece
            if len(body) > MAX_ANSWER:
                response.close()
                message = f"an answer of more than {MAX_ANSWER} bytes"
                raise requests.exceptions.RequestException(message)
        response._content = bytes(body)  # noqa: SLF001 - where `content` looks first, and reads all where it finds nothing
        return response


def _connect(endpoint: Endpoint, timeout: float) -> docker.APIClient:
    if endpoint.url.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK forgets to close its own when nobody is there
            probe.connect(endpoint.url.removeprefix("unix://"))
    tls, seconds = tls_config(endpoint), math.ceil(timeout)
    client = _Client(endpoint.url, version="auto", tls=tls, timeout=seconds, max_pool_size=2 * _THREADS)
    if endpoint.url.startswith("unix:"):
        client.trust_env = False  # there is no proxy to a socket; looking for one is a third of every call's time
    if tuple(map(int, client.api_version.split("."))) < _OLDEST_API:
        message = f"the engine speaks API {client.api_version}; 1.41, Docker 20.10, is the oldest that will do"
        raise EngineUnavailable(message)
    return client


@contextlib.contextmanager
def _translated(endpoint: Endpoint) -> Iterator[None]:
    """The SDK lets out its own errors and those of `requests`; only the engine's answers are left as they are."""
    try:
        yield
    except docker.errors.APIError:
        raise
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError, *_ILLEGIBLE) as error:
        message = f"cannot reach a Docker engine at {endpoint.url} ({endpoint.source}): {error}"
        raise EngineUnavailable(message) from error


@contextlib.contextmanager
def _legible(answer: object) -> Iterator[None]:
    """An answer of another form than the engine's is none, whatever it trips up here."""
    try:
        yield
    except _ILLEGIBLE as error:
        message = f"the engine answered what it never should: {str(answer)[:200]}"
        raise EngineUnavailable(message) from error


@contextlib.contextmanager
def _refusal_as(kind: type[SandboxError], wish: str) -> Iterator[None]:
    try:
        yield
    except docker.errors.APIError as error:
        message = f"the engine refused to {wish}: {error.explanation or error}"
        raise kind(message) from error
