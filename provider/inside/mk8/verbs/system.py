"""Verbs about the system: what the sandbox is, has and runs. All only look, and see nothing beyond the container."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from .. import dates
from .. import open as files
from ..allowlist import ALLOWED, REFUSED, is_allowed
from ..deadline import look
from ..encoding import shown
from ..errors import StepFailure
from ..verb import READ, TEXT, Arguments, Verb, World
from .limits import at, brief, every, joined, one_of, refuse, whole

MOST_PROCESSES, MOST_FOUND = 200, 50
MOST_LINES, USUAL_LINES = 500, 50
MOST_SERVICES: Final = 200

PROC: Final = "/proc"
SYS: Final = "/sys"
ETC: Final = "/etc"
LOGS: Final = "/var/log"
UNITS: Final = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
INIT: Final = "/etc/init.d"

_LOG_FILES: Final = {
    "syslog": ("syslog", "messages"),
    "auth": ("auth.log", "secure"),
    "kern": ("kern.log",),
    "daemon": ("daemon.log",),
    "messages": ("messages", "syslog"),
}
_SOURCES: Final = ("application", "system", "security", *_LOG_FILES)
_SECRET: Final = re.compile(
    # Longest first, so that the whole word is named.
    r"(CONNECTION_STRING|CREDENTIAL|CERTIFICATE|PASSWORD|PRIVATE|ENCRYPT|SECRET|PASSWD|APIKEY|TOKEN|CONN|AUTH|KEY|JWT)"
    r"\s*[=:]\s*(?:\"[^\"]*\"|'[^']*'|\S+)",
    re.IGNORECASE,
)
_SHOWN_OF_UNIT: Final = ("Description=", "ExecStart=", "Restart=", "Type=", "User=", "WantedBy=")
_UNIT_BYTES: Final = 65_536
_SMALL_FILE: Final = 1024 * 1024
_MEMORY: Final = frozenset({"tmpfs", "ramfs", "proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs"})
_GIB, _MIB = 1024**3, 1024**2
_SIOCGIFADDR: Final = 0x8915
_ETHERNET: Final = "1"


def redacted(text: str) -> str:
    """Without what looks like the value of a secret."""
    return _SECRET.sub(lambda found: f"{found[1]}=[REDACTED]", text)


def _slurp(path: str) -> str:
    """A small file of the system; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - not of the workspace
            return file.read(_SMALL_FILE)
    except OSError:
        return ""


# The environment


def _env_get(world: World, arguments: Sequence[str]) -> str:
    name = arguments[0].upper()
    if not is_allowed(name):
        secret = any(word in name for word in REFUSED)
        why = "is named like a secret" if secret else f"is none of those that scripts may ask for: {', '.join(ALLOWED)}"
        message = f"the variable {brief(arguments[0])} {why}"
        raise StepFailure(message)
    return world.environment.get(name, "")


def _env_list(world: World, arguments: Sequence[str]) -> str:
    return joined(f"{name}={world.environment.get(name, '(not set)')}" for name in ALLOWED)


# The machine


def _who_am_i(world: World, arguments: Sequence[str]) -> str:
    return world.user or str(os.getuid())


def _cpu_count(world: World, arguments: Sequence[str]) -> str:
    count = len(os.sched_getaffinity(0))
    quota = re.fullmatch(r"([0-9]+) ([1-9][0-9]*)\s*", _slurp(f"{SYS}/fs/cgroup/cpu.max"))
    return str(max(1, min(count, -(-int(quota[1]) // int(quota[2])))) if quota else count)


def _uptime(world: World, arguments: Sequence[str]) -> str:
    # Since the container's first process began; /proc/uptime alone is the host's.
    try:
        began = int(_slurp(f"{PROC}/1/stat").rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return f"{int(float(_slurp(f'{PROC}/uptime').split()[0]) - began)}s"
    except (IndexError, ValueError) as error:
        message = "the time since the start is not to be seen here"
        raise StepFailure(message) from error


def _date(world: World, arguments: Sequence[str]) -> str:
    return dates.show(time.time_ns(), arguments[0] if arguments else "o")


def _is_format(arguments: Arguments) -> None:
    form = at(arguments, 0)
    wrong = dates.what_is_wrong(form) if form is not None else None
    if wrong:
        right = "Right: yyyy-MM-dd HH:mm:ss, or o"
        refuse("SysDateFormat", f"the format {brief(form or '')} is wrong: {wrong}. {right}")


def _os_info(world: World, arguments: Sequence[str]) -> str:
    import sys

    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', _slurp(f"{ETC}/os-release"), re.MULTILINE)
    system = os.uname()
    version = ".".join(map(str, sys.version_info[:3]))
    return joined(
        (f"OS: {named[1] if named else system.sysname}", f"Arch: {system.machine}", f"Runtime: Python {version}")
    )


def _memory(world: World, arguments: Sequence[str]) -> str:
    status = dict(line.split(":", 1) for line in _slurp(f"{PROC}/self/status").splitlines() if ":" in line)
    sizes = [int(re.sub(r"\D", "", status.get(name, "")) or 0) * 1024 for name in ("VmRSS", "VmData")]
    names = ("Process working set", "Runtime heap")
    return joined(f"{name}: {_with_unit(size, _MIB, 'MB')}" for name, size in zip(names, sizes, strict=True))


def _with_unit(size: int, unit: int, name: str) -> str:
    return f"{size} bytes ({size // unit} {name})"


# Disks


def _mounts() -> list[tuple[str, str]]:
    """Where something is mounted, and its format; the last one of a place covers those before."""
    found = {}
    for line in _slurp(f"{PROC}/self/mounts").splitlines():
        fields = line.split(" ")
        if len(fields) > 2:  # noqa: PLR2004 - device, place, format
            place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
            found[place] = fields[2]
    return sorted(found.items())


def _drive_type(form: str) -> str:
    return "Ram" if form in _MEMORY else "Network" if form in _REMOTE else "Fixed"


def _disk_usage(world: World, arguments: Sequence[str]) -> str:
    path = files.place(world.root, arguments[0] if arguments else world.root)
    with files.saying(path):
        usage = os.statvfs(path)
    over = [mount for mount in _mounts() if path == mount[0] or path.startswith(mount[0].rstrip("/") + "/")]
    place, form = over[-1] if over else ("/", "unknown")
    total, available = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
    return joined(
        (
            f"Drive: {place}",
            f"Type: {_drive_type(form)}",
            f"Total: {_with_unit(total, _GIB, 'GB')}",
            f"Available: {_with_unit(available, _GIB, 'GB')}",
            f"Used: {total - usage.f_bfree * usage.f_frsize} bytes",
        )
    )


def _drive_list(world: World, arguments: Sequence[str]) -> str:
    said = []
    for place, form in _mounts():
        look(world.deadline)
        try:
            usage = os.statvfs(place)
        except OSError:
            said.append(f"{place}\t{_drive_type(form)}\t(not ready)")
            continue
        total, free = usage.f_blocks * usage.f_frsize, usage.f_bfree * usage.f_frsize
        used = round(100 * (total - free) / total) if total else 0
        sizes = f"Total: {total / _GIB:.1f}GB\tFree: {free / _GIB:.1f}GB\tUsed: {used}%"
        said.append(f"{place}\t{_drive_type(form)}\t{form}\t{sizes}")
    return joined(said)


def _dir_size(world: World, arguments: Sequence[str]) -> str:
    walked = files.walk(world.root, arguments[0], deadline=world.deadline, sizes=True)
    return _with_unit(sum(entry.size for entry in walked), _MIB, "MB")


# Processes


def _processes() -> list[tuple[str, int]]:
    """Names and numbers, sorted."""
    found = []
    for number in os.listdir(PROC):  # noqa: PTH208 - not of the workspace
        name = _slurp(f"{PROC}/{number}/comm").strip() if number.isdigit() else ""
        if name:
            found.append((name, int(number)))
    return sorted(found)


def _process_list(world: World, arguments: Sequence[str]) -> str:
    return joined(f"{number}\t{name}" for name, number in _processes()[:MOST_PROCESSES])


def _process_find(world: World, arguments: Sequence[str]) -> str:
    wanted = arguments[0].lower()
    found = [(name, number) for name, number in _processes() if wanted in name.lower()][:MOST_FOUND]
    if not found:
        return "No matching processes."
    return joined(
        (f"{len(found)} process(es):", *(f"{number}\t{name}\t{_resident(number)}KB" for name, number in found))
    )


def _resident(number: int) -> int:
    size = re.search(r"^VmRSS:\s*([0-9]+)", _slurp(f"{PROC}/{number}/status"), re.MULTILINE)
    return int(size[1]) if size else 0


# The network, as the container sees it


def interfaces() -> list[str]:
    import socket

    return [name for _, name in socket.if_nameindex()]


def _net_info(world: World, arguments: Sequence[str]) -> str:
    said = []
    for name in interfaces():
        if name == "lo":
            continue
        about = f"{SYS}/class/net/{name}"
        status = "Up" if _slurp(f"{about}/operstate").strip() in {"up", "unknown"} else "Down"
        kind = "Ethernet" if _slurp(f"{about}/type").strip() == _ETHERNET else "Other"
        said.append("\t".join((name, status, kind, ", ".join(_addresses(name)))))
    return joined(said) if said else "There is no network interface besides loopback."


def _addresses(name: str) -> Iterator[str]:
    import fcntl
    import ipaddress
    import socket
    import struct

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        data = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        yield socket.inet_ntoa(data[20:24])
    for line in _slurp(f"{PROC}/net/if_inet6").splitlines():
        fields = line.split()
        if fields and fields[-1] == name and not fields[0].startswith("fe8"):
            yield str(ipaddress.IPv6Address(int(fields[0], 16)))


# Logs and services


def _log_path(source: str) -> str | None:
    paths = (f"{LOGS}/{name}" for name in _LOG_FILES.get(source, ()))
    return next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - not of the workspace


def _log_read(world: World, arguments: Sequence[str]) -> str:
    source = arguments[0].lower()
    count = int(arguments[1]) if len(arguments) > 1 else USUAL_LINES
    wanted = arguments[2].lower() if len(arguments) > 2 else ""  # noqa: PLR2004 - the third
    if source not in _LOG_FILES:
        return f"The log '{source}' is one of Windows; here there are {', '.join(_LOG_FILES)}."
    path = _log_path(source)
    if path is None:
        return f"The log '{source}' is not kept in this sandbox."
    kept: deque[str] = deque(maxlen=count)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - not of the workspace
            while line := file.readline(_SMALL_FILE):
                look(world.deadline)
                if wanted in line.lower():
                    kept.append(redacted(line.rstrip("\n")))
    except OSError as error:
        return f"The log '{source}' ({path}) cannot be read: {error.strerror}."
    return joined((f"{len(kept)} line(s) from {path}:", *kept))


def _log_sources(world: World, arguments: Sequence[str]) -> str:
    return joined(
        f"{source}: {f'available ({path})' if (path := _log_path(source)) else 'not found'}" for source in _SOURCES
    )


def _unit_names() -> list[str]:
    found = set()
    for folder in UNITS:
        with contextlib.suppress(OSError):
            found |= {name for name in os.listdir(folder) if name.endswith(".service")}  # noqa: PTH208
    return sorted(found)


def _service_list(world: World, arguments: Sequence[str]) -> str:
    wanted = arguments[0].lower() if arguments else ""
    kind, names = "systemd", _unit_names()
    if not names:
        kind = "init.d"
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(INIT))  # noqa: PTH208 - not of the workspace
    found = [name for name in names if wanted in name.lower()][:MOST_SERVICES]
    return joined((f"{len(found)} {kind} service(s):", *(f"  {shown(name)}" for name in found)))


def _service_status(world: World, arguments: Sequence[str]) -> str:
    name = arguments[0]
    unit = name if name.endswith(".service") else f"{name}.service"
    for folder in UNITS:
        path = f"{folder}/{unit}"
        if os.path.isfile(path):  # noqa: PTH113 - not of the workspace
            lines = (line.strip() for line in _slurp(path)[:_UNIT_BYTES].splitlines())
            return joined((path, *(redacted(line) for line in lines if line.startswith(_SHOWN_OF_UNIT))))
    return f"Service '{name}' not found."


def _is_service(arguments: Arguments) -> None:
    name = at(arguments, 0)
    if name is not None and (not re.fullmatch(r"[A-Za-z0-9@_.-]{1,200}", name) or ".." in name):
        refuse("SysServiceStatus", f"{brief(name)} is no name of a service: letters, digits, @ _ . and - only")


def _nothing(name: str, act: Callable[[World, Sequence[str]], str]) -> Verb:
    """Make a verb without arguments."""
    return Verb(name=name, least=0, most=0, kinds=(), describe="", act=act)


VERBS: Final = (
    Verb(name="EnvGet", least=1, most=1, kinds=(TEXT,), describe="name", act=_env_get),
    _nothing("EnvList", _env_list),
    _nothing("SysWhoAmI", _who_am_i),
    _nothing("SysPwd", lambda world, _: world.cwd),
    _nothing("SysHostname", lambda *_: os.uname().nodename),
    _nothing("SysCpuCount", _cpu_count),
    _nothing("SysTempDir", lambda *_: "/tmp"),  # noqa: S108 - a tmpfs of the sandbox
    _nothing("SysUptime", _uptime),
    _nothing("SysDate", _date),
    Verb(
        name="SysDateFormat",
        least=0,
        most=1,
        kinds=(TEXT,),
        describe="[format, default o]",
        act=_date,
        check=_is_format,
    ),
    _nothing("SysTimestamp", lambda *_: str(int(time.time()))),
    _nothing("SysOsInfo", _os_info),
    Verb(name="SysDiskUsage", least=0, most=1, kinds=(READ,), describe="[path, default the root]", act=_disk_usage),
    Verb(name="SysDirSize", least=1, most=1, kinds=(READ,), describe="directory", act=_dir_size),
    _nothing("SysMemory", _memory),
    _nothing("SysProcessList", _process_list),
    Verb(name="ProcessFind", least=1, most=1, kinds=(TEXT,), describe="part of a name", act=_process_find),
    _nothing("SysDriveList", _drive_list),
    _nothing("SysNetInfo", _net_info),
    Verb(
        name="SysLogRead",
        least=1,
        most=3,
        kinds=(TEXT,),
        describe=f"{'|'.join(_SOURCES)}, [lines 1-{MOST_LINES}, default {USUAL_LINES}], [part of a line]",
        act=_log_read,
        check=every(
            one_of("SysLogRead", 0, "the source", _SOURCES),
            whole("SysLogRead", 1, "the number of lines", 1, MOST_LINES),
        ),
    ),
    _nothing("SysLogSources", _log_sources),
    Verb(name="SysServiceList", least=0, most=1, kinds=(TEXT,), describe="[part of a name]", act=_service_list),
    Verb(
        name="SysServiceStatus",
        least=1,
        most=1,
        kinds=(TEXT,),
        describe="name",
        act=_service_status,
        check=_is_service,
    ),
)
