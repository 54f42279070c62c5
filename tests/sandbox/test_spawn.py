"""Commands that one talks to, in real containers: pipes, terminals, signals; and the same under tmux."""

import asyncio
import contextlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest

pytestmark = pytest.mark.docker
MINIMAL = "sandbox-provider/minimal"


async def until(process, text):
    """Read until a text has come."""
    said = b""
    async for chunk in process.output():
        said += chunk.data
        if text in said:
            return said
    pytest.fail(f"it ended without {text!r}: {said!r}")


async def test_a_conversation_over_pipes(provider):
    """Each line is answered before the next is sent, and the end of stdin ends the program."""
    process = await provider.spawn("while read line; do echo got $line; done; echo bye; exit 3")
    for word in (b"one", b"two"):
        await process.write(word + b"\n")
        assert await until(process, b"\n") == b"got " + word + b"\n"
    await process.close_stdin()
    assert await until(process, b"bye\n") == b"bye\n"
    outcome = await process.wait()
    assert (outcome.exit_code, outcome.stdout) == (3, b"got one\ngot two\nbye\n")


async def test_a_conversation_on_a_terminal(provider):
    """A new size and Ctrl-C reach the program; what is typed is echoed by the terminal in the sandbox."""
    process = await provider.spawn("echo ready; read _; stty size; exec sleep 30", tty=(24, 80), timeout=20)
    await until(process, b"ready")
    process.resize(50, 120)
    await process.write(b"go\n")
    assert b"go\r\n" in await until(process, b"50 120")
    await process.write(b"\x03")
    assert (await process.wait()).signal == signal.SIGINT


async def test_ctrl_z_stops_the_program_and_not_the_shell(provider):
    """On a terminal with job control, Ctrl-Z gives the prompt back and `fg` goes on."""
    process = await provider.spawn(["sh", "-i"], tty=(24, 80), timeout=20)
    await process.write(b"PS1=; sleep 300\n")
    sandbox = provider.runs()[0].sandbox
    while not any("sleep 300" in item.command for item in await sandbox.processes()):
        pass
    await process.write(b"\x1a")
    await until(process, b"Stopped")
    await process.write(b"kill %1; fg; exit 4\n")
    assert (await process.wait()).exit_code == 4


async def test_a_signal_reaches_the_command(provider):
    """A signal sent through the handle reaches the command's trap."""
    process = await provider.spawn("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done")
    await until(process, b"ready")
    process.signal(signal.SIGUSR1)
    outcome = await process.wait()
    assert (outcome.exit_code, outcome.stdout) == (7, b"ready\ncaught\n")


async def test_several_side_by_side_do_not_mix(provider):
    """Eight conversations at once each hear their own answers only."""

    async def talk(name):
        process = await provider.spawn("while read line; do echo $line-$line; done")
        for turn in range(5):
            await process.write(b"%d.%d\n" % (name, turn))
            assert await until(process, b"\n") == b"%d.%d-%d.%d\n" % (name, turn, name, turn)
        await process.close_stdin()
        return (await process.wait()).exit_code

    assert await asyncio.gather(*(talk(name) for name in range(8))) == [0] * 8


async def test_nobody_reads_and_nothing_is_lost(provider):
    """Whoever only waits gets all output in the outcome, more than any pipe holds."""
    process = await provider.spawn("yes | head -c 3000000")
    assert (await process.wait()).stdout_bytes == 3_000_000


async def test_a_reader_that_stops_stops_the_command(provider):
    """The command waits for its reader, and is still ended by a cancel in a moment."""
    process = await provider.spawn("yes")
    async for _ in process.output():
        break
    began = time.monotonic()
    process.cancel()
    assert (await process.wait()).status == "canceled"
    assert time.monotonic() - began < 2


@contextlib.contextmanager
def tmux():
    """A tmux server of our own, and a function that gives it commands."""
    name = f"sandbox-test-{uuid.uuid4().hex[:8]}"

    def do(*words):
        result = subprocess.run(
            ["tmux", "-L", name, "-f", "/dev/null", *words], check=True, capture_output=True, timeout=20
        )
        return result.stdout.decode()

    try:
        yield do
    finally:
        subprocess.run(["tmux", "-L", name, "kill-server"], check=False, capture_output=True, timeout=20)


def test_a_shell_under_tmux(workspace, unavailable):
    """In a tmux window its size is followed, Ctrl-C and Ctrl-Z reach the program, and the exit status is its own."""
    if shutil.which("tmux") is None:
        unavailable("tmux is not installed; `make test` installs it")
    shell = shlex.join([sys.executable, "-m", "provider", "shell", "-w", str(workspace), "--image", MINIMAL])
    with tmux() as do:
        do(
            "new-session",
            "-d",
            "-x",
            "90",
            "-y",
            "20",
            f"stty -g > {workspace}/before; {shell}; echo status=$?; stty -g > {workspace}/after; cat",
        )

        def shows(text):
            end = time.monotonic() + 30
            while text not in (screen := do("capture-pane", "-p")):
                assert time.monotonic() < end, f"{text!r} never came:\n{screen}"
                time.sleep(0.02)

        def types(*keys):
            do("send-keys", *keys)

        shows("/workspace $")
        types("stty size", "Enter")
        shows("20 90")
        do("resize-window", "-x", "70", "-y", "15")
        types("stty size", "Enter")
        shows("15 70")
        types("sleep 300", "Enter")
        types("C-c")
        types("echo interrupted=$?", "Enter")
        shows("interrupted=130")
        types("sleep 301", "Enter")
        types("C-z")
        shows("Stopped")
        types("kill %1; fg; exit 7", "Enter")
        shows("status=7")
        end = time.monotonic() + 10
        while not (workspace / "after").exists() or not (workspace / "after").read_text().endswith("\n"):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert (workspace / "before").read_text() == (workspace / "after").read_text()
