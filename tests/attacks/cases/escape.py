"""Group A: out of the container, by the kernel's doors, the runtime's or a socket."""

from __future__ import annotations

from dataclasses import replace

from attacks.case import (
    BOTH,
    Attack,
    Input,
    Seen,
    all_fail,
    denied,
    ends,
    never_says,
    python,
    refuses,
    says,
    shell,
    tries,
)

from provider.errors import CallError

AUDIT = r"""
grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status
echo "devices: $(cd /dev; find . -type b -o -type c | sed 's,^..,,' | grep -v ^pts/ | sort | tr '\n' ' ')"
echo "block devices: $(find /dev -type b | wc -l)"
echo "set-id files: $(find / -xdev -type f -perm +6000 2>/dev/null | wc -l)"
echo "sockets: $(find / -type s 2>/dev/null | grep -v ^/proc | wc -l)"
echo "host sockets: $(ls /var/run/docker.sock /run/containerd/containerd.sock /run/podman/* 2>/dev/null | wc -l)"
echo "interfaces: $(ls /sys/devices/virtual/net | tr '\n' ' ')"
echo "pid 1: $(tr '\0' ' ' </proc/1/cmdline)"
[ "$(ls -d /proc/[0-9]* | wc -l)" -gt 12 ] && echo "processes of others"
for folder in / /bin /dev /etc /home /proc /sys /usr /var /.sandbox-inside; do
    touch "$folder/attack" 2>/dev/null && echo "writable: $folder"
done
echo "shared mounts: $(grep -c ' shared:' /proc/self/mountinfo)"
echo "user namespaces: $(unshare -U true 2>/dev/null && echo yes || echo no)"
"""


def audit_is_clean(seen: Seen) -> None:
    """Word for word what an audit from inside finds."""
    found = [" ".join(line.split()) for line in seen.stdout.splitlines()]
    assert found == [
        *(f"Cap{name}: 0000000000000000" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")),
        "NoNewPrivs: 1",
        "Seccomp: 2",
        "devices: full null random tty urandom zero",
        "block devices: 0",
        "set-id files: 0",
        "sockets: 0",
        "host sockets: 0",
        "interfaces: lo",
        "pid 1: /.sandbox-init",
        *(["writable: /dev"] if seen.user == "0:0" else []),  # a tmpfs of the engine's, which root owns
        "shared mounts: 0",
        "user namespaces: no",
    ]


def mounts_are_private(seen: Seen) -> None:
    """No mount passes anything on to another mount tree; only the root, which the engine made, takes from one."""
    mounts = {line.split()[4]: line.split(" - ")[0].split()[6:] for line in seen.stdout.splitlines()}
    assert mounts.get("/workspace") == [], seen.said
    assert {at: how for at, how in mounts.items() if how and (at, how[0][:7]) != ("/", "master:")} == {}


CONNECT = """
import socket
def connect(path):
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(path)
    print(caller.recv(100))
"""
WORKSPACE_SOCKET = python(CONNECT + 'attempt("host.sock", connect, "host.sock")')
LINKED_SOCKETS = replace(
    python(CONNECT + 'for name in ("docker", "containerd", "podman", "host"): attempt(name, connect, name)'),
    links={
        "docker": "/var/run/docker.sock",
        "containerd": "/run/containerd/containerd.sock",
        "podman": "/run/podman/podman.sock",
        "host": "@BESIDE@/host.sock",
    },
)


def _no_devices(seen: Seen) -> None:
    assert [path.name for path in seen.workspace.iterdir() if path.is_block_device() or path.is_char_device()] == []


ATTACKS = (
    Attack(
        id="A1",
        title="Nothing can be mounted, bound or remounted.",
        input=tries(
            "mount -t proc proc /tmp",
            "mount --bind / /tmp",
            "mount -t tmpfs none /tmp",
            "mount -o remount,rw /",
            "mount -o remount,rw /proc/sys",
            "umount /proc/kcore",
            "umount -l /workspace",
            "pivot_root / /tmp",
            "chroot / true",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A2",
        title="The host's core_pattern, modprobe path and other kernel settings cannot be written.",
        input=tries(
            "echo '|/workspace/x' > /proc/sys/kernel/core_pattern",
            "echo /workspace/x > /proc/sys/kernel/modprobe",
            "echo 1 > /proc/sys/kernel/sysrq",
            "echo 0 > /proc/sys/kernel/randomize_va_space",
            "echo x > /proc/sys/kernel/hostname",
            "echo 1 > /proc/sys/vm/overcommit_memory",
            "echo /workspace/x > /sys/kernel/uevent_helper",
            "echo x > /proc/sys/fs/binfmt_misc/register",
            "sysctl -w kernel.panic=1",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A3",
        title="The host cannot be rebooted or crashed by sysrq.",
        input=tries("echo b > /proc/sysrq-trigger", "echo c > /proc/sysrq-trigger", "reboot -f", "poweroff -f"),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A4",
        title="No cgroup can be changed: no release_agent, no moved process, no raised limit.",
        input=tries(
            "for f in /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/release_agent; do echo /workspace/x > $f && exit 0;"
            " done; exit 1",
            "for f in /sys/fs/cgroup/*/notify_on_release; do echo 1 > $f && exit 0; done; exit 1",
            "mkdir /sys/fs/cgroup/memory/mine || mkdir /sys/fs/cgroup/mine",
            "echo -1 > /sys/fs/cgroup/memory/memory.limit_in_bytes || echo max > /sys/fs/cgroup/memory.max",
            "echo max > /sys/fs/cgroup/pids/pids.max || echo max > /sys/fs/cgroup/pids.max",
            "echo 'a *:* rwm' > /sys/fs/cgroup/devices/devices.allow",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A5",
        title="No device node can be made, so no host disk can be read.",
        input=tries(
            "mknod /tmp/disk b 254 0",
            "mknod /workspace/disk b 8 0",
            "mknod /tmp/mem c 1 1",
            "mknod /tmp/fuse c 10 229",
            "mknod /tmp/whiteout c 0 0",
        ),
        users=BOTH,
        judge=(all_fail, _no_devices),
    ),
    Attack(
        id="A6",
        title="The host's disks, memory, kernel log and other devices are not there.",
        input=tries(
            *(
                f"head -c 1 {device} | grep -q ."
                for device in (
                    "/dev/vda",
                    "/dev/sda",
                    "/dev/mem",
                    "/dev/kmem",
                    "/dev/port",
                    "/dev/kmsg",
                    "/dev/fuse",
                    "/dev/kvm",
                    "/dev/net/tun",
                    "/dev/vsock",
                    "/dev/loop-control",
                    "/dev/mapper/control",
                    "/proc/kcore",
                    "/proc/kallsyms",
                    "/proc/keys",
                    "/proc/timer_list",
                )
            ),
            "dmesg | grep -q .",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A7",
        title="No namespace can be entered, by nsenter or by the descriptors in /proc.",
        input=tries(
            "nsenter -t 1 -m true",
            "nsenter -t 1 -m -u -i -n -p true",
            "nsenter --net=/proc/1/ns/net true",
            "nsenter --user=/proc/self/ns/user true",
            "unshare -U true",
            "unshare -m true",
            "readlink /proc/1/ns/mnt",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A8",
        title="Pid 1's root, directory, files, memory and environment cannot be looked at or walked through.",
        input=tries(
            "ls /proc/1/root/",
            "ls /proc/1/cwd/",
            "cat /proc/1/root/@SECRET@",
            "readlink /proc/1/fd/0",
            "cat /proc/1/fd/0",
            "cat /proc/1/environ | grep .",
            "head -c 1 /proc/1/mem",
            "cat /proc/1/maps | grep .",
            "cat /proc/self/root/@SECRET@",
            "cat /workspace/../../../../../@SECRET@",
            "echo forged > /proc/1/fd/1",
        ),
        users=BOTH,
        canaries=("secret",),
        judge=(all_fail,),
    ),
    Attack(
        id="A9",
        title="The programs that stand behind /proc/*/exe, the runtime's among them, cannot be overwritten.",
        input=tries(
            "echo x > /proc/self/exe",
            "echo x > /proc/1/exe",
            "echo x > /.sandbox-init",
            "rm -f /.sandbox-init",
            "mv /.sandbox-init /workspace/x",
            "exec 9</.sandbox-init; echo x > /proc/self/fd/9",
            "echo x >> /.sandbox-inside/__init__.py",
        ),
        users=BOTH,
        judge=(all_fail,),
    ),
    Attack(
        id="A10",
        title="A working directory that is a descriptor of the runtime's is refused before anything runs.",
        input=shell("cat ../../../etc/shadow"),
        wishes={"cwd": "/proc/self/fd/8"},
        judge=(denied(CallError, "cwd"),),
    ),
    Attack(
        id="A10a",
        title="Nor can a link in the workspace make it one.",
        input=Input(argv="pwd", links={"out": "/proc/self/fd/8"}),
        wishes={"cwd": "out"},
        judge=(denied(CallError, "cwd"),),
    ),
    Attack(
        id="A11",
        title="A program that asks to be interpreted by /proc/self/exe runs nothing of the host's.",
        input=Input(
            argv="chmod +x evil; ./evil; echo tried; ./linked; echo tried; exec /proc/self/exe -c 'echo inside'",
            files={"evil": b"#!/proc/self/exe\n"},
            links={"linked": "/proc/self/exe"},
        ),
        judge=(says("^tried\n(.*\n)*tried$"),),
    ),
    Attack(
        id="A12",
        title="/dev/null is the real one, and what is masked with it is masked.",
        input=shell(
            "stat -c '%F %t:%T' /dev/null; for f in /proc/keys /proc/timer_list /proc/cmdline /proc/kallsyms;"
            " do stat -c '%F %t:%T' $f; done; rm /dev/null || ln -sf /proc/sysrq-trigger /dev/null; echo tried"
        ),
        users=BOTH,
        judge=(says(r"\A(character special file 1:3\n){5}"), says("^tried$")),
    ),
    Attack(
        id="A13",
        title="There is no console of the runtime's making; a terminal is the container's own.",
        input=shell("ls /dev/console && echo BREACH; tty; echo tried"),
        wishes={"tty": (24, 80)},
        judge=(says(r"^/dev/pts/\d+\r?$", r"^tried\r?$"), never_says("BREACH")),
    ),
    Attack(
        id="A14",
        title="No mount of a sandbox is passed on to another mount tree, so none can be redirected while it is set up.",
        input=shell("cat /proc/self/mountinfo"),
        judge=(mounts_are_private,),
    ),
    Attack(
        id="A15",
        title="Links to the sockets of engines and agents lead nowhere.",
        input=LINKED_SOCKETS,
        canaries=("unix",),
        users=BOTH,
        judge=(refuses("docker", "containerd", "podman", "host"),),
    ),
    Attack(
        id="A16",
        title="In the tiers with unix sockets neither.",
        input=LINKED_SOCKETS,
        tier="unix",
        canaries=("unix",),
        judge=(refuses("docker", "containerd", "podman", "host"),),
    ),
    Attack(
        id="A17",
        title="A host daemon whose socket lies in the workspace is out of reach.",
        input=WORKSPACE_SOCKET,
        canaries=("socket in the workspace",),
        users=BOTH,
        judge=(refuses("host.sock"),),
    ),
    Attack(
        id="A17a",
        title="A tier in which it would be in reach refuses such a workspace.",
        input=WORKSPACE_SOCKET,
        tier="unix",
        canaries=("socket in the workspace",),
        judge=(denied(CallError, r"socket, host\.sock"),),
    ),
    Attack(
        id="A17b",
        title="So does the tier for debuggers.",
        input=WORKSPACE_SOCKET,
        tier="debug",
        canaries=("socket in the workspace",),
        judge=(denied(CallError, r"socket, host\.sock"),),
    ),
    Attack(
        id="A21a",
        title="No call gives a command another user or a capability.",
        input=python("""
attempt("setuid 0", os.setuid, 0)
attempt("setgid 0", os.setgid, 0)
attempt("setgroups", os.setgroups, [0])
attempt("setresuid", os.setresuid, 0, 0, 0)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)
call("capset", 126, ctypes.addressof(header), ctypes.addressof(data))
call("ambient", 157, 47, 2, 21, 0, 0)
"""),
        judge=(refuses("setuid 0", "setgid 0", "setgroups", "setresuid", "capset", "ambient"),),
    ),
    Attack(
        id="A22",
        title="An audit from inside finds no capability, no device, no socket, no way out, word for word.",
        input=shell(AUDIT),
        users=BOTH,
        judge=(audit_is_clean,),
    ),
    Attack(
        id="A22a",
        title="Pid 1 cannot be killed, stopped, traced or spoken for.",
        input=shell(
            "exec 2>/dev/null; kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1; sleep 0.1;"
            " printf 'Z\\0\\0\\0\\5exit='; exit 5"
        ),
        users=BOTH,
        judge=(ends(exit_code=5, signal=None), says("exit=$")),
    ),
    Attack(
        id="A22b",
        title="No process, file or message of another tenant's running sandbox is to be seen.",
        input=shell(
            # The word is put together there, for its own text is among what it lists.
            "ps -o args; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; find /tmp /dev/shm ~;"
            " ls @TENANT@ && printf 'BR%s\\n' EACH; cat @TENANT@/notes; ls /dev/mqueue; echo tried"
        ),
        canaries=("tenant",),
        users=BOTH,
        judge=(says("^tried$"), never_says("BREACH")),
    ),
)
"""A18, A19, A11b and A21 need an engine to look at, and are in `test_engine.py`."""
