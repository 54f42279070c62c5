"""
The sandboxes that an administrator has registered, with their signed environments. For people: no agent reaches it.

    mk8.shell/
      sandboxes.json          {"<id>": {"rootPath": "...", "registeredAtUtc": "..."}}
      mk8.shell.key           32 random bytes, for nobody else to read
      env/<id>/               mk8.shell.env, to be edited, and mk8.shell.signed.env, which is what counts
      history/                every signed file there ever was
      lock

Nothing of it lies in a sandbox's root, so that nothing of it is mounted where a script or a process of one could write.
The environment is read and verified anew for every script. Writers take turns, and a file is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import hmac
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from provider.dialects.mk8.errors import ContainerError, SandboxNotFound, SignatureError
from provider.errors import CallError, ConfigError

ID: Final = re.compile(r"[A-Za-z0-9]{1,64}")
SEPARATOR: Final = "\n---MK8-SIGNATURE---\n"
KEY_BYTES: Final = 32
ENV_BYTES: Final = 2**20
"""Of one environment; a word list of thousands is far below."""
OWN_ID: Final = "MK8_SANDBOX_ID"
_REGISTRY, _KEY, _LOCK = "sandboxes.json", "mk8.shell.key", "lock"
_EDITED, _SIGNED = "mk8.shell.env", "mk8.shell.signed.env"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEX: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A sandbox, as it stands in the registry."""

    id: str
    root: Path
    registered_at: dt.datetime


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    rootPath: str  # noqa: N815 - the file's own name
    registeredAtUtc: dt.datetime  # noqa: N815


_ENTRIES: Final = TypeAdapter(dict[str, _Entry])


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Registry:
    """The folder that holds it all."""

    folder: Path
    clock: Callable[[], dt.datetime] = now

    # What there is.

    def list(self) -> tuple[Registered, ...]:
        with self._locked(fcntl.LOCK_SH):
            return tuple(sorted(self._read().values(), key=lambda one: one.id.lower()))

    def get(self, sandbox_id: str) -> Registered:
        """
        The sandbox of this id, in any case.

        Raises:
            SandboxNotFound: there is none.
        """
        with self._locked(fcntl.LOCK_SH):
            return self._get(sandbox_id)

    def read_env(self, sandbox_id: str) -> dict[str, str]:
        """
        The signed environment, verified; names in upper case. Read from the disk each time.

        Raises:
            SandboxNotFound: there is no such sandbox.
            SignatureError: the file is missing, was changed, or is another sandbox's.
        """
        with self._locked(fcntl.LOCK_SH):
            return self._verified(self._get(sandbox_id))

    def open(self, sandbox_id: str) -> tuple[Registered, dict[str, str]]:
        """
        The sandbox and its environment, for one script.

        Raises:
            SandboxNotFound, SignatureError: as `get` and `read_env`.
            ContainerError: its folder is gone, or something else is in its place.
        """
        with self._locked(fcntl.LOCK_SH):
            found = self._get(sandbox_id)
            if found.root.is_symlink() or not found.root.is_dir() or found.root.resolve() != found.root:
                message = f"the folder of sandbox '{found.id}' is gone, or a link is in its place; register it anew"
                raise ContainerError(message)
            return found, self._verified(found)

    # What an administrator does.

    def register(self, sandbox_id: str, root: Path, env: Mapping[str, str] | None = None) -> Registered:
        """
        Make a sandbox of a new or empty folder.

        Raises:
            CallError: the id, the folder or a variable cannot be used.
        """
        if not ID.fullmatch(sandbox_id):
            message = f"{sandbox_id[:80]!r} is no sandbox id: 1 to 64 letters and digits, A-Z a-z 0-9"
            raise CallError(message)
        text = env_text(sandbox_id, env or {})
        with self._locked():
            known = self._read()
            if sandbox_id.lower() in known:
                message = f"sandbox {sandbox_id!r} is registered already; ids are the same in any case"
                raise CallError(message)
            found = Registered(id=sandbox_id, root=self._usable_root(root, known), registered_at=self.clock())
            self._sign(found, text)
            self._write(known | {sandbox_id.lower(): found})
        return found

    def update(self, sandbox_id: str, env: Mapping[str, str]) -> Registered:
        """
        Replace all of the environment, and sign it.

        Raises:
            SandboxNotFound: there is no such sandbox.
            CallError: a variable cannot be written.
        """
        with self._locked():
            found = self._get(sandbox_id)
            self._sign(found, env_text(found.id, env))
        return found

    def resign(self, sandbox_id: str) -> Registered:
        """
        Sign the environment as somebody has edited it.

        Raises:
            SandboxNotFound: there is no such sandbox.
            CallError: the edited file cannot be read, or says that it is another sandbox's.
        """
        with self._locked():
            found = self._get(sandbox_id)
            path = self.env_path(found.id)
            try:
                text = _read_file(path, ENV_BYTES).decode()
            except (OSError, ValueError) as error:
                message = f"{path} cannot be read: {error}"
                raise CallError(message) from error
            said = parse_env(text).get(OWN_ID)
            if said is None:
                text = f"{OWN_ID}={found.id}\n{text}"
            elif said.lower() != found.id.lower():
                message = f"{path} says {OWN_ID}={said}, but it is that of {found.id}; leave the line as it was"
                raise CallError(message)
            self._sign(found, text, edited=said is None)
        return found

    def unregister(self, sandbox_id: str, *, delete_files: bool = False) -> Registered:
        """
        Forget a sandbox, and with `delete_files` what is in its root too. The history stays.

        Raises:
            SandboxNotFound: there is no such sandbox.
        """
        with self._locked():
            known = self._read()
            found = self._get(sandbox_id)
            del known[found.id.lower()]
            self._write(known)
            shutil.rmtree(self._env_folder(found.id), ignore_errors=True)
            if delete_files and found.root.is_dir() and not found.root.is_symlink():
                shutil.rmtree(found.root)
        return found

    def env_path(self, sandbox_id: str) -> Path:
        """The file to edit before `resign`."""
        return self._env_folder(sandbox_id) / _EDITED

    # How it is kept.

    @contextlib.contextmanager
    def _locked(self, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            message = f"{self.folder} can be written by others; it must be yours, with mode 0700"
            raise ConfigError(message)
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> dict[str, Registered]:
        """By id in lower case."""
        path = self.folder / _REGISTRY
        try:
            entries = _ENTRIES.validate_json(_read_file(path, 16 * ENV_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            message = f"{path} cannot be read: {problem}"
            raise ConfigError(message) from error
        return {
            name.lower(): Registered(id=name, root=Path(entry.rootPath), registered_at=entry.registeredAtUtc)
            for name, entry in entries.items()
            if ID.fullmatch(name)
        }

    def _write(self, known: Mapping[str, Registered]) -> None:
        entries = {
            one.id: {"rootPath": str(one.root), "registeredAtUtc": one.registered_at.isoformat()}
            for one in known.values()
        }
        _replace(self.folder / _REGISTRY, json.dumps(entries, indent=2, ensure_ascii=False).encode())

    def _get(self, sandbox_id: str) -> Registered:
        found = self._read().get(sandbox_id.lower()) if ID.fullmatch(sandbox_id) else None
        if found is None:
            raise SandboxNotFound(sandbox_id)
        return found

    def _usable_root(self, root: Path, known: Mapping[str, Registered]) -> Path:
        if root.is_symlink():
            message = f"{root} is a link; name the folder itself"
            raise CallError(message)
        real = root.absolute().resolve()
        own = self.folder.resolve()
        for other, what in ((own, "the registry"), *((one.root, f"sandbox {one.id!r}") for one in known.values())):
            if real == other or real in other.parents or other in real.parents:
                message = f"{real} and {other}, which is {what}, lie in each other; take another folder"
                raise CallError(message)
        try:
            real.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(real.iterdir()):
                message = f"{real} is not empty; a sandbox begins in a new or empty folder"
                raise CallError(message)
        except OSError as error:
            message = f"{real} cannot be a sandbox's folder: {error.strerror or error}"
            raise CallError(message) from error
        return real

    # The signature.

    def _env_folder(self, sandbox_id: str) -> Path:
        return self.folder / "env" / sandbox_id.lower()

    def _key(self, *, create: bool = False) -> bytes:
        path = self.folder / _KEY
        if create:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(os.urandom(KEY_BYTES))
        try:
            key = _read_file(path, KEY_BYTES, private=True)
        except (OSError, ValueError) as error:
            message = f"the key {path} cannot be used: {error}"
            raise SignatureError(message) from error
        if len(key) != KEY_BYTES:
            message = f"the key {path} has {len(key)} bytes in place of {KEY_BYTES}"
            raise SignatureError(message)
        return key

    def _sign(self, found: Registered, text: str, *, edited: bool = True) -> None:
        data = text.encode()
        if len(data) > ENV_BYTES:
            message = f"the environment of {found.id} has {len(data)} bytes; {ENV_BYTES} is the most"
            raise CallError(message)
        signed = data + SEPARATOR.encode() + _signature(self._key(create=True), data).encode()
        folder = self._env_folder(found.id)
        history = self.folder / "history"
        for one in (folder.parent, folder, history):
            one.mkdir(mode=0o700, exist_ok=True)
        if edited:
            _replace(folder / _EDITED, data)
        _replace(folder / _SIGNED, signed)
        stamp = f"{found.id}_{self.clock():%Y%m%d_%H%M%S}"
        names = (f"{stamp}{f'_{number}' if number else ''}.signed.env" for number in range(1000))
        _replace(next(history / name for name in names if not (history / name).exists()), signed)

    def _verified(self, found: Registered) -> dict[str, str]:
        path = self._env_folder(found.id) / _SIGNED
        try:
            signed = _read_file(path, ENV_BYTES + 1024).decode()
        except (OSError, ValueError) as error:
            message = (
                f"the signed environment of {found.id} cannot be read: {error}; `sandbox mk8 resign` makes it anew"
            )
            raise SignatureError(message) from error
        text = verify(signed, self._key())
        env = parse_env(text)
        if env.get(OWN_ID, "").lower() != found.id.lower():
            message = f"the signed environment of {found.id} says {OWN_ID}={env.get(OWN_ID)}: it is another sandbox's"
            raise SignatureError(message)
        return env


def verify(signed: str, key: bytes) -> str:
    """
    The text that was signed.

    Raises:
        SignatureError: it was not, or not so.
    """
    text, separator, given = signed.rpartition(SEPARATOR)
    given = given.strip()
    if not separator:
        message = "there is no signature in the file; `sandbox mk8 resign` signs it"
        raise SignatureError(message)
    if not _HEX.fullmatch(given):
        message = "the signature is not 64 hexadecimal digits; `sandbox mk8 resign` signs anew"
        raise SignatureError(message)
    if not hmac.compare_digest(_signature(key, text.encode()), given):
        message = "the environment was changed after it was signed; look at it, then `sandbox mk8 resign`"
        raise SignatureError(message)
    return text


def _signature(key: bytes, data: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()


# The environment as text.


def parse_env(text: str) -> dict[str, str]:
    """`KEY=VALUE` by line; names in upper case, the last one wins, one pair of quotes around a value is none of it."""
    env = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and name.strip() and not name.startswith("#"):
            env[name.strip().upper()] = _unquoted(value.strip())
    return env


def env_text(sandbox_id: str, env: Mapping[str, str]) -> str:
    """
    An environment as text, which `parse_env` reads as the same.

    Raises:
        CallError: a name or a value cannot be written.
    """
    given = {name.upper(): value for name, value in env.items()}
    if given.setdefault(OWN_ID, sandbox_id).lower() != sandbox_id.lower():
        message = f"{OWN_ID} is {sandbox_id}, and nothing else; leave it out"
        raise CallError(message)
    given[OWN_ID] = sandbox_id
    lines = []
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            message = f"{name[:80]!r} is no name of a variable: letters, digits and _, no digit first"
            raise CallError(message)
        if value.splitlines() not in ([], [value]) or "\0" in value:
            message = f"the value of {name} has a line break in it; one line is all that a variable has"
            raise CallError(message)
        lines.append(f"{name}={value}" if _unquoted(value.strip()) == value else f'{name}="{value}"')
    return "\n".join([*lines, ""])


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


# Files.


def _read_file(path: Path, most: int, *, private: bool = False) -> bytes:
    """
    All of a regular file; no link is followed.

    Raises:
        OSError, ValueError: it is none, too long, or not ours alone where it has to be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            message = f"{path} is no regular file"
            raise ValueError(message)
        if private and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
            message = "others can read it; it must be yours, with mode 0600"
            raise ValueError(message)
        data = file.read(most + 1)
    if len(data) > most:
        message = f"{path} has more than {most} bytes"
        raise ValueError(message)
    return data


def _replace(path: Path, data: bytes) -> None:
    """Write beside it and move into place: a reader sees the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
