"""Rows of the verbs about the system."""

from __future__ import annotations

from rows import FOLDER, like, no, ok

FAILURE = "StepFailure"
ENVIRONMENT = {"environment": {"HOME": "/home/x", "LANG": "C.UTF-8"}}
LOGS = {"verbs.system.LOGS": "/workspace/log"}
UNITS = {"verbs.system.UNITS": ("/workspace/etc", "/workspace/lib"), "verbs.system.INIT": "/workspace/init"}
SERVICE = (
    "[Unit]\nDescription=A thing\nDocumentation=x\n[Service]\nExecStart=/bin/x --password=abc\nUser=me\n"
    "[Install]\nWantedBy=y\n"
)
SHOWN = "/workspace/lib/x.service\nDescription=A thing\nExecStart=/bin/x --password=[REDACTED]\nUser=me\nWantedBy=y"
PROCESSES = {
    "2/comm": "zeta\n",
    "10/comm": "Alpha\n",
    "10/status": "Name: x\nVmRSS:\t  128 kB\n",
    "3/comm": "alpha\n",
    "self/comm": "no\n",
}
PROC = {"verbs.system.PROC": "/workspace"}
MOUNTS = {"self/mounts": "overlay / overlay rw 0 0\ntmpfs /no/such\\040place tmpfs rw 0 0\n"}
HOST = r"[^\n]+"

ROWS = (
    ok("EnvGet", "HOME", gives="/home/x", world=ENVIRONMENT),
    ok("EnvGet", "home", gives="/home/x", world=ENVIRONMENT),
    ok("EnvGet", "TZ", gives="", world=ENVIRONMENT),
    no("EnvGet", "AWS_SECRET_ACCESS_KEY", fails=FAILURE, says="named like a secret"),
    no("EnvGet", "LD_PRELOAD", fails=FAILURE, says="none of those that scripts may ask for: HOME, "),
    ok(
        "EnvList",
        gives=like(r"HOME=/home/x\nUSERPROFILE=\(not set\)\n(?:[A-Z_]+=[^\n]*\n){12}NODE_ENV=\(not set\)"),
        world=ENVIRONMENT,
    ),
    ok("SysWhoAmI", gives="agent", world={"user": "agent"}),
    ok("SysWhoAmI", gives=like("[0-9]+")),
    ok("SysPwd", gives="/workspace"),
    ok("SysHostname", gives=like(HOST)),
    ok("SysCpuCount", gives=like("[1-9][0-9]*")),
    ok(
        "SysCpuCount",
        gives="1",
        files={"fs/cgroup/cpu.max": "50000 100000\n"},
        patch={"verbs.system.SYS": "/workspace"},
    ),
    ok("SysTempDir", gives="/tmp"),
    ok("SysUptime", gives=like(r"[0-9]+s")),
    ok(
        "SysUptime", gives="95s", files={"1/stat": "1 (a) b) S" + " 0" * 18 + " 500 0", "uptime": "100.5 1"}, patch=PROC
    ),
    no("SysUptime", fails=FAILURE, says="not to be seen", patch=PROC),
    ok("SysDate", gives=like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}\+00:00")),
    ok("SysDateFormat", gives=like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}\+00:00")),
    ok("SysDateFormat", "yyyy-MM-dd", gives=like(r"20\d\d-\d\d-\d\d")),
    no("SysDateFormat", "yyyy" * 9, says="1 to 32"),
    no("SysDateFormat", "yyyy; rm", says="';' in it"),
    no("SysDateFormat", "", says="1 to 32"),
    ok("SysTimestamp", gives=like("1[0-9]{9}")),
    ok("SysOsInfo", gives=like(rf"OS: {HOST}\nArch: {HOST}\nRuntime: Python 3\.[0-9.]+")),
    ok(
        "SysOsInfo",
        gives=like(rf"OS: Debian X\n{HOST}\n{HOST}"),
        files={"os-release": 'A=b\nPRETTY_NAME="Debian X"\n'},
        patch={"verbs.system.ETC": "/workspace"},
    ),
    ok(
        "SysDiskUsage",
        gives=like(
            r"Drive: /[^\n]*\nType: (Fixed|Ram|Network)\nTotal: \d+ bytes \(\d+ GB\)\n"
            r"Available: \d+ bytes \(\d+ GB\)\nUsed: \d+ bytes"
        ),
    ),
    ok("SysDiskUsage", "d", gives=like(r"(?s)Drive: /.*Used: \d+ bytes"), files={"d": FOLDER}),
    no("SysDiskUsage", "d", fails=FAILURE, says="does not exist"),
    no("SysDiskUsage", "/etc", fails="PathViolation", says="outside"),
    ok("SysDirSize", ".", gives="5 bytes (0 MB)", files={"a": "12", "d/b": "345"}),
    ok("SysDirSize", ".", gives="3145728 bytes (3 MB)", files={"a": "x" * 3_145_728}),
    no("SysDirSize", "d", fails=FAILURE, says="does not exist"),
    ok("SysMemory", gives=like(r"Process working set: [1-9]\d+ bytes \(\d+ MB\)\nRuntime heap: \d+ bytes \(\d+ MB\)")),
    ok("SysProcessList", gives="10\tAlpha\n3\talpha\n2\tzeta", files=PROCESSES, patch=PROC),
    ok("SysProcessList", gives=like(r"(?s)0\tx\n.*199\tx"), files={f"{n}/comm": "x" for n in range(201)}, patch=PROC),
    ok("ProcessFind", "ALPHA", gives="2 process(es):\n10\tAlpha\t128KB\n3\talpha\t0KB", files=PROCESSES, patch=PROC),
    ok("ProcessFind", "no such", gives="No matching processes.", files=PROCESSES, patch=PROC),
    ok(
        "ProcessFind",
        "x",
        gives=like(r"(?s)50 process\(es\):.*"),
        files={f"{n}/comm": "x" for n in range(51)},
        patch=PROC,
    ),
    ok(
        "SysDriveList",
        gives=like(
            r"/\tFixed\toverlay\tTotal: \d+\.\dGB\tFree: \d+\.\dGB\tUsed: \d+%\n/no/such place\tRam\t\(not ready\)"
        ),
        files=MOUNTS,
        patch=PROC,
    ),
    ok("SysNetInfo", gives=like(r"(?s).+")),
    ok(
        "SysNetInfo",
        gives="There is no network interface besides loopback.",
        patch={"verbs.system.interfaces": lambda: ["lo"]},
    ),
    ok(
        "SysNetInfo",
        gives="eth9\tUp\tEthernet\t2001:db8::1",
        files={
            "class/net/eth9/operstate": "up\n",
            "class/net/eth9/type": "1\n",
            "net/if_inet6": "20010db8000000000000000000000001 02 40 00 80     eth9\n"
            "fe800000000000000000000000000001 02 40 20 80     eth9\n",
        },
        patch={
            **PROC,
            "verbs.system.SYS": "/workspace",
            "verbs.system.interfaces": lambda: ["lo", "eth9"],
        },
    ),
    ok(
        "SysLogRead",
        "syslog",
        "2",
        gives="2 line(s) from /workspace/log/syslog:\nb\nc",
        files={"log/syslog": "a\nb\nc\n"},
        patch=LOGS,
    ),
    ok(
        "SysLogRead",
        "SYSLOG",
        gives="1 line(s) from /workspace/log/messages:\na",
        files={"log/messages": "a\n"},
        patch=LOGS,
    ),
    ok(
        "SysLogRead",
        "auth",
        "5",
        "FAIL",
        gives="1 line(s) from /workspace/log/auth.log:\nx fail",
        files={"log/auth.log": "ok\nx fail\n"},
        patch=LOGS,
    ),
    ok(
        "SysLogRead",
        "kern",
        gives="1 line(s) from /workspace/log/kern.log:\nPassword=[REDACTED] token=[REDACTED] KEY=[REDACTED]",
        files={"log/kern.log": 'Password=hunter2 token: abc KEY="a b"\n'},
        patch=LOGS,
    ),
    ok("SysLogRead", "daemon", gives="The log 'daemon' is not kept in this sandbox.", patch=LOGS),
    ok("SysLogRead", "security", gives=like("The log 'security' is one of Windows; here there are .*"), patch=LOGS),
    no("SysLogRead", "nginx", says="the source is one of application, "),
    no("SysLogRead", "syslog", "0", says="1 to 500"),
    no("SysLogRead", "syslog", "501", says="1 to 500"),
    ok(
        "SysLogSources",
        gives=like(r"(?s)application: not found\n.*syslog: available \(/workspace/log/syslog\)\nauth: not found\n.*"),
        files={"log/syslog": ""},
        patch=LOGS,
    ),
    ok(
        "SysServiceList",
        gives="2 systemd service(s):\n  a.service\n  b.service",
        files={"etc/b.service": "", "lib/a.service": "", "lib/c.socket": ""},
        patch=UNITS,
    ),
    ok(
        "SysServiceList",
        "B",
        gives="1 systemd service(s):\n  b.service",
        files={"etc/b.service": "", "lib/a.service": ""},
        patch=UNITS,
    ),
    ok("SysServiceList", gives="1 init.d service(s):\n  cron", files={"init/cron": ""}, patch=UNITS),
    ok("SysServiceList", gives="0 init.d service(s):", patch=UNITS),
    ok(
        "SysServiceList",
        gives=like(r"(?s)200 systemd service\(s\):.*"),
        files={f"lib/{n}.service": "" for n in range(201)},
        patch=UNITS,
    ),
    ok("SysServiceStatus", "x", gives=SHOWN, files={"lib/x.service": SERVICE}, patch=UNITS),
    ok("SysServiceStatus", "x.service", gives=SHOWN, files={"lib/x.service": SERVICE}, patch=UNITS),
    ok("SysServiceStatus", "y", gives="Service 'y' not found.", patch=UNITS),
    no("SysServiceStatus", "../../etc/passwd", says="no name of a service"),
    no("SysServiceStatus", "a..b", says="no name of a service"),
    no("SysServiceStatus", "", says="no name of a service"),
)
