"""
Group B: the kernel's rare corners.

Most are rows of one probe (`tests/sandbox/probe.c`), made in one container for each tier. The list of attacks leaves
B4 and B5 without a text; here they are what its findings name beside B1 to B6. B18 is `test_syscalls.py`.
"""

from __future__ import annotations

from attacks.case import BOTH, Attack, answers, ends, program, python, refuses, says

PROBE = program("../sandbox/probe.c")
NETLINK = tuple(f"netlink {number}" for number in range(1, 32))
FAMILIES = tuple(f"family {number}" for number in range(64) if number not in {1, 2, 10, 16})
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)

# By id: the promise, and the rows of the probe that have to be refused.
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "B1": ("Nothing of io_uring is there.", ("io_uring_setup", "io_uring_enter", "io_uring_register")),
    "B2": (
        "The kernel's crypto sockets cannot be opened (Copy Fail).",
        ("alg seqpacket", "alg, high bit", "family 38"),
    ),
    "B3": (
        "Vsock, which knows no network namespace, cannot be opened, nor any other rare family.",
        ("vsock stream", *FAMILIES),
    ),
    "B4": ("Page-cache pages cannot be put into pipes (Dirty Pipe).", ("splice", "vmsplice")),
    "B5": (
        "Junk in the upper half of a register gets nothing past the filter.",
        (
            "alg, high bit",
            "unix, high bit",
            "clone newuser, high bit",
            "personality read implies exec, high bit",
            "openat setuid, junk",
            "fchmod setuid, junk",
            "mknodat setuid, junk",
            "TIOCSTI, bit 32",
            "TIOCSTI, bit 63",
            "TIOCLINUX, bit 32",
            "TIOCSETD, bit 32",
        ),
    ),
    "B6": ("A call by the 32-bit door ends the process.", ("int 0x80",)),
    "B7": ("So does a call by x32's.", ("x32",)),
    "B8": (
        "No raw packet, and no protocol for which the kernel would load a module.",
        ("packet raw", "raw", "sctp", "dccp", "mptcp", "l2tp", "udplite"),
    ),
    "B9": ("Of netlink, only the list of interfaces.", NETLINK),
    "B10": (
        "No namespace can be made, and clone3, which no filter can read, is not there.",
        (
            *(f"clone {flag:x}" for flag in NAMESPACES),
            *(f"unshare {flag:x}" for flag in NAMESPACES),
            "clone newuser",
            "clone3",
            "setns",
        ),
    ),
    "B11": ("The kernel's keys are out of reach.", ("keyctl", "add_key")),
    "B12": ("The kernel's userfaultfd, which widens races, is not there.", ("userfaultfd",)),
    "B13": ("No program and no counter can be put into the kernel.", ("bpf", "perf_event_open")),
    "B14": ("Nobody traces, not even themselves; pid 1 least of all.", ("ptrace", "ptrace pid 1")),
    "B15": (
        "No process reads or writes another's memory, descriptors or limits.",
        ("process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "prlimit pid 1, set"),
    ),
    "B16": ("The x86 descriptor table cannot be changed.", ("modify_ldt",)),
    "B17": (
        "No personality makes data executable or maps page zero.",
        ("personality read implies exec", "personality mmap page zero", "personality no randomize"),
    ),
}
IN_DEBUG = ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "personality no randomize")
"""What that tier is for. Pid 1 stays closed in it."""

INTO_PID_1 = python("""
import struct
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
remote = (ctypes.c_ulong * 2)(0x400000, 8)
call("read pid 1", 310, 1, ctypes.addressof(vector), 1, ctypes.addressof(remote), 1, 0)
call("write pid 1", 311, 1, ctypes.addressof(vector), 1, ctypes.addressof(remote), 1, 0)
call("attach pid 1", 101, 16, 1, 0, 0)
call("seize pid 1", 101, 0x4206, 1, 0, 0)
pidfd = call("pidfd of pid 1", 434, 1, 0)
call("take a descriptor of pid 1", 438, pidfd, 0, 0)
attempt("open its memory", open, "/proc/1/mem", "rb")
attempt("look at a descriptor", os.readlink, "/proc/1/fd/0")
attempt("open a descriptor", open, "/proc/1/fd/0")
attempt("read a stack", lambda: open("/proc/1/stack").read())
call("request_key", 249, b"user", b"x", 0, 0)
call("tee", 276, 0, 1, 1, 0)
call("open_by_handle_at", 304, -100, 0, 0)
call("kexec_load", 246, 0, 0, 0, 0)
call("init_module", 175, 0, 0, b"")
call("fanotify_init", 300, 0, 0)
""")
PID_1 = (
    *("read pid 1", "write pid 1", "attach pid 1", "seize pid 1", "take a descriptor of pid 1", "open its memory"),
    *(
        "look at a descriptor",
        "open a descriptor",
        "read a stack",
        "request_key",
        "tee",
        "open_by_handle_at",
        "kexec_load",
        "init_module",
    ),
    "fanotify_init",
)

ATTACKS = (
    *(
        Attack(id=id_, title=title, input=PROBE, timeout=60, users=BOTH, judge=(refuses(*rows), ends(exit_code=0)))
        for id_, (title, rows) in ROWS.items()
    ),
    Attack(
        id="B4a",
        title="Nor with real pipes and a file of the image.",
        input=python("""
import struct
source = os.open("/etc/passwd", os.O_RDONLY)
reading, writing = os.pipe()
other = os.pipe()
call("splice", 275, source, 0, writing, 0, 16, 0)
os.write(writing, b"x" * 16)
call("tee", 276, reading, other[1], 16, 0)
text = ctypes.create_string_buffer(b"x" * 16)
vector = (ctypes.c_ulong * 2)(ctypes.addressof(text), 16)
call("vmsplice", 278, writing, ctypes.addressof(vector), 1, 0)
"""),
        judge=(refuses("splice", "tee", "vmsplice"),),
    ),
    Attack(
        id="B13a",
        title="Nor a counter of the process's own, nor a program or map of any kind.",
        input=python("""
attributes = (ctypes.c_ulong * 16)()
ctypes.c_uint32.from_buffer(attributes, 0).value = 1  # a software counter
ctypes.c_uint32.from_buffer(attributes, 4).value = 128
attributes[5] = 0b1100001  # off, and neither kernel nor hypervisor
call("perf_event_open", 298, ctypes.addressof(attributes), 0, -1, -1, 0)
numbers = (ctypes.c_uint32 * 32)(2, 4, 4, 1)  # an array of one number
call("bpf map", 321, 0, ctypes.addressof(numbers), 128)
call("bpf program", 321, 5, ctypes.addressof(numbers), 128)
"""),
        users=BOTH,
        judge=(refuses("perf_event_open", "bpf map", "bpf program"),),
    ),
    Attack(
        id="B6a",
        title="A process ended by the filter is told as ended by that signal, never as an exit.",
        input=python("""
import signal
print("tried", flush=True)
signal.signal(signal.SIGSYS, signal.SIG_DFL)
ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39))
print("BREACH")
"""),
        judge=(ends(signal=31, exit_code=None), says("^tried\n?\\Z")),
    ),
    Attack(
        id="B14a",
        title="Pid 1, which has the command's uid, cannot be read, written, traced or robbed of a descriptor.",
        input=INTO_PID_1,
        users=BOTH,
        judge=(refuses(*PID_1),),
    ),
    Attack(
        id="B14b",
        title="In the tier for debuggers neither.",
        input=INTO_PID_1,
        tier="debug",
        users=BOTH,
        judge=(refuses(*PID_1),),
    ),
    Attack(
        id="B15a",
        title="The tier with unix sockets adds them and nothing else.",
        input=PROBE,
        timeout=60,
        tier="unix",
        judge=(
            refuses(*(row for _, rows in ROWS.values() for row in rows)),
            answers(family_1="ok"),
        ),
    ),
    Attack(
        id="B15b",
        title="The tier for debuggers adds what debuggers need, and nothing else.",
        input=PROBE,
        timeout=60,
        tier="debug",
        judge=(
            refuses(*(row for _, rows in ROWS.values() for row in rows if row not in IN_DEBUG)),
            answers(ptrace="ok", family_1="ok"),
        ),
    ),
)
