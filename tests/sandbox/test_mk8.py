"""mk8.shell in real containers: twelve scripts from end to end, and what no script and no workspace can do."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from provider import Provider, Settings
from provider.dialects.mk8.configuration import FILE_NAME as BASE
from provider.dialects.mk8.registry import Registry

pytestmark = pytest.mark.docker
IMAGE = "sandbox-provider/default"
TOOL = "execute_mk8_shell"
ID = "Box1"
Listener = Callable[[Mapping[str, Any]], Any]


def op(verb: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"verb": verb, "args": list(args), **more}


def when(kind: str, *args: str, then: dict[str, Any]) -> dict[str, Any]:
    return {"verb": "If", "if": {"predicate": {"kind": kind, "args": list(args)}, "then": then}}


def seen(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with its mode and what is in it; a link counts as itself."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, content)
    return found


def texts(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden folders aside."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


class Ran:
    """One call: the text that the model gets, the script's result as JSON if anything ran, and the events."""

    def __init__(self, text: str, events: list[dict[str, Any]]) -> None:
        self.text, self.events = text, events
        results = [event for event in events if event["type"] == "mk8_result"]
        self.result: dict[str, Any] | None = results[0] if results else None

    @property
    def steps(self) -> list[dict[str, Any]]:
        assert self.result is not None, self.text
        return self.result["steps"]

    def said(self) -> list[str | None]:
        return [step["output"] for step in self.steps]

    def statuses(self) -> str:
        """One letter a step: S, F, and - for skipped."""
        return "".join({"Succeeded": "S", "Failed": "F", "Skipped": "-"}[step["status"]] for step in self.steps)

    def failure(self) -> tuple[int, str, str]:
        """Which step failed first, its category and its error."""
        failed = [step for step in self.steps if step["status"] == "Failed"]
        assert failed, self.text
        step = failed[0]
        return step["stepIndex"], step["errorCategory"], step["error"]


class Box:
    """A registered sandbox over an empty workspace, and things beside it that no script may touch."""

    def __init__(self, root: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.home = root.parent / "home"
        self.outside = root.parent / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text("of the host")
        self.registry = Registry(self.home)
        self.registry.register(ID, root, env)
        self.table: dict[str, Any] = {"home": self.home}
        self.settings: dict[str, Any] = {}

    def configure(self, **base: Any) -> None:
        (self.home / BASE).write_text(json.dumps(base))

    def beside(self) -> dict[str, tuple[int, bytes]]:
        """What is around the workspace, but for the jobs, which every call adds to."""
        around = {**seen(self.home), **{f"outside/{name}": one for name, one in seen(self.outside).items()}}
        return {name: one for name, one in around.items() if "jobs.sqlite" not in name and name not in {"lock", BASE}}

    async def run(
        self,
        *operations: dict[str, Any],
        options: Mapping[str, Any] | None = None,
        cleanup: tuple[dict[str, Any], ...] = (),
        listen: Listener | None = None,
    ) -> Ran:
        script = {"operations": list(operations), "options": options or {}, "cleanup": list(cleanup)}
        return await self.call(TOOL, {"sandboxId": ID, "script": script}, listen)

    async def call(self, tool: str, payload: object, listen: Listener | None = None) -> Ran:
        events: list[dict[str, Any]] = []

        def hear(event: Mapping[str, Any]) -> Any:
            events.append(dict(event))
            return listen(event) if listen else None

        settings = Settings(spares=0, tools={"mk8": self.table}, **self.settings)
        before = self.beside()
        async with Provider(self.root, image=IMAGE, settings=settings) as provider:
            reply = await provider.call(tool, payload, session="s", call_id="c", on_event=hear)
        assert self.beside() == before, "something outside of the sandbox was changed"
        ran = Ran(reply.content, events)
        assert reply.success == ran.text.startswith("status=Completed")
        return ran

    async def refused(self, *operations: dict[str, Any], **more: Any) -> str:
        """The error of a script of which nothing ran."""
        before = seen(self.root)
        ran = await self.run(*operations, **more)
        assert (ran.result, seen(self.root)) == (None, before), ran.text
        assert ran.text.startswith("status=Failed error=")
        return ran.text.removeprefix("status=Failed error=")

    def make_gate(self) -> Callable[[], Awaitable[None]]:
        """A pipe `gate`: `cat gate` waits in the sandbox until it is opened here."""
        gate = self.root / "gate"
        os.mkfifo(gate)
        gate.chmod(0o666)
        return lambda: asyncio.to_thread(gate.write_text, "open")


def within_gate(box: Box, do: Callable[[], None]) -> Listener:
    """While `cat gate` waits as the first step, do something to the workspace, and let it go on."""
    open_gate = box.make_gate()

    async def listen(event: Mapping[str, Any]) -> None:
        if event.get("event") == "step_started" and event["stepIndex"] == 0:
            do()
            await open_gate()

    return listen


WAIT = op("ProcRun", "cat", "gate")


@pytest.fixture
def box(workspace: Path) -> Box:
    return Box(workspace, env={"GREETING": "hello"})


# The twelve.


async def test_1_a_build_with_captures_and_guards(box: Box):
    """What a step captures reaches later arguments; a guard that does not hold skips its step."""
    ran = await box.run(
        op("FileWriteMany", "src/a.txt", "one\n", "src/b.txt", "two\n"),
        op("DirCreate", "dist"),
        op("ProcRun", "tar", "-czf", "dist/app.tgz", "src"),
        when("FileExists", "dist/app.tgz", then=op("FileHash", "src/a.txt", captureAs="HASH")),
        when("FileExists", "dist/other.tgz", then=op("Fail", "never")),
        when("CaptureEmpty", "HASH", then=op("Fail", "never")),
        op("ProcRun", "tar", "-tf", "dist/app.tgz", captureAs="LISTED"),
        when("PrevContains", "SRC/A.TXT", then=op("Echo", "built")),
        op("FileWrite", "dist/manifest.txt", "a.txt $HASH\n$listed"),
        op("VersionCompare", "1.2", "1.10", captureAs="ORDER"),
        op("Assert", "$ORDER", "-1"),
        options={"pipeStepOutput": True},
    )
    assert ran.statuses() == "SSSSS--SSSSS"
    assert ran.result is not None
    assert ran.result["allSucceeded"]
    sha = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"
    assert ran.said()[4] == sha
    first, *listed = (box.root / "dist/manifest.txt").read_text().splitlines()
    assert (first, sorted(listed)) == (f"a.txt {sha}", ["./src/", "./src/a.txt", "./src/b.txt"])
    with tarfile.open(box.root / "dist/app.tgz") as archive:
        assert sorted(archive.getnames()) == ["./src", "./src/a.txt", "./src/b.txt"]
    assert {path.stat().st_uid for path in box.root.rglob("*")} == {box.root.stat().st_uid}
    assert ran.text.splitlines()[0] == "status=Completed result=AllSucceeded: True"
    assert "  [5] Fail SKIPPED (0 attempt(s), 0ms)" in ran.text.splitlines()


async def test_2_retry_and_goto(box: Box):
    """A step is tried again and succeeds once what it needs is there; one that never does jumps over the rest."""

    def help_out(event: Mapping[str, Any]) -> None:
        if event.get("event") == "progress" and event["stepIndex"] == 0:
            (box.root / "late.txt").write_text("there")

    ran = await box.run(
        op("FileRead", "late.txt", maxRetries=3),
        op("FileRead", "never.txt", maxRetries=2, onFailure="goto:end"),
        op("FileWrite", "skipped.txt", "x"),
        op("Fail", "skipped as well"),
        op("FileWrite", "end.txt", "reached", label="End"),
        options={"retryDelay": "00:00:00.2"},
        listen=help_out,
    )
    assert ran.statuses() == "SF--S"
    assert ran.steps[0]["attempts"] > 1
    assert [step["attempts"] for step in ran.steps[1:]] == [3, 0, 0, 1]
    waits = [event["retryIn"] for event in ran.events if event.get("event") == "progress" and event["stepIndex"] == 1]
    assert waits == [0.2, 0.4]
    assert ran.result is not None
    assert not ran.result["allSucceeded"]
    assert ran.text.startswith("status=Failed error=mk8.shell script execution failed\nAllSucceeded: False\n")
    assert texts(box.root) == {"late.txt": "there", "end.txt": "reached"}


async def test_3_cleanup_after_a_failure(box: Box):
    """Nothing after the failure runs; all of the cleanup does, whatever becomes of its own steps."""
    ran = await box.run(
        op("DirCreate", "build"),
        op("FileWrite", "build/half.txt", "x", captureAs="WROTE"),
        op("Fail", "no more"),
        op("FileWrite", "build/never.txt", "x"),
        options={"failureMode": "StopAndCleanup"},
        cleanup=(
            op("FileRead", "missing.txt"),
            op("FileWrite", "log.txt", "$WROTE"),
            op("DirDelete", "build"),
        ),
    )
    assert ran.statuses() == "SSF-FSS"
    assert ran.failure() == (2, "StepFailure", "no more")
    assert [step["stepIndex"] for step in ran.steps if step["cleanup"]] == [4, 5, 6]
    assert texts(box.root) == {"log.txt": "Written 1 chars to /workspace/build/half.txt"}
    assert not (box.root / "build").exists()


async def test_4_template_and_patch(box: Box):
    """Keys are filled in, texts replaced everywhere; a patch that fits nowhere leaves the file alone."""
    (box.root / "page.tmpl").write_text("{{TITLE}}: {{ TITLE }} {{OTHER}} {{TITLE}}\n")
    ran = await box.run(
        op("FileTemplate", "out/page.txt", template={"source": "page.tmpl", "values": {"TITLE": "Start"}}),
        op("FilePatch", "out/page.txt", patches=[{"find": "Start", "replace": "End"}, {"find": "\n", "replace": ""}]),
        op("FilePatch", "out/page.txt", patches=[{"find": "End", "replace": "X"}, {"find": "nowhere", "replace": ""}]),
    )
    assert ran.statuses() == "SSF"
    assert ran.said()[:2] == [
        "FileTemplate: /workspace/page.tmpl → /workspace/out/page.txt (1 replacement(s))",
        "FilePatch: applied 2 patch(es) to /workspace/out/page.txt",
    ]
    assert (box.root / "out/page.txt").read_text() == "End: {{ TITLE }} {{OTHER}} End"


async def test_5_batches(box: Box):
    """Each entry is a step of its own; a loop fills in item and index."""
    ran = await box.run(
        op("FileWriteMany", "a.txt", "1", "b.txt", "2", "c.txt", "3"),
        op("FileCopyMany", "a.txt", "copy/a.txt", "b.txt", "copy/b.txt"),
        op("FileDeleteMany", "a.txt", "c.txt"),
        {"verb": "ForEach", "forEach": {"items": ["x", "y"], "body": op("FileAppend", "log.txt", "$INDEX=$ITEM ")}},
    )
    assert ran.statuses() == "S" * 9
    assert [step["verb"] for step in ran.steps][3:7] == ["FileCopy", "FileCopy", "FileDelete", "FileDelete"]
    assert texts(box.root) == {"b.txt": "2", "copy/a.txt": "1", "copy/b.txt": "2", "log.txt": "0=x 1=y "}
    said = await box.refused(op("FileWriteMany", "a.txt", "1", "b.txt"))
    assert said.startswith("mk8.shell compile error [FileWriteMany]: ")


async def test_6_a_pipeline_of_json(box: Box):
    """The output of a step is the next one's `$PREV`, as it is: text of a file can be no variable."""
    (box.root / "package.json").write_text('{"name": "app", "deps": {"a": ["1.2.3", "$HOME"]}, "n": 1}')
    ran = await box.run(
        op("FileRead", "package.json"),
        op("JsonQuery", "$PREV", "$.deps.a", captureAs="VERSIONS"),
        op("JsonGet", "$PREV", "0"),
        op("VersionParse", "v$PREV"),
        op("JsonFromPairs", "version", "$PREV", "greeting", "$GREETING"),
        op("JsonMerge", "$PREV", '{"ok": true}'),
        op("JsonCompact", "$PREV"),
        op("FileWrite", "result.json", "$PREV"),
        op("JsonGet", "$VERSIONS", "1"),
        op("Echo", "$PREV"),
        options={"pipeStepOutput": True},
    )
    assert ran.statuses() == "S" * 10
    assert ran.said()[8:] == ["$HOME", "$HOME"]
    written = json.loads((box.root / "result.json").read_text())
    assert written == {"version": "1.2.3", "greeting": "hello", "ok": True}


def zipped(*entries: tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return data.getvalue()


def tarred(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return gzip.compress(data.getvalue(), 1)


def linked(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


async def test_7_an_archive_that_is_a_bomb(box: Box):
    """Too much in it, a way out, a link, or a file that tools would run: nothing of it is extracted."""
    much = bytes(257 * 2**20)
    archives = {
        "bomb.zip": zipped(("first.txt", b"x"), ("much", much)),
        "bomb.tgz": tarred(("first.txt", b"x"), ("much", much)),
        "out.tar.gz": tarred(("first.txt", b"x"), ("../../escape", b"x")),
        "link.tgz": tarred(linked("way", "/workspace/.."), ("way/escape", b"x")),
        "hook.zip": zipped(("first.txt", b"x"), (".git/hooks/pre-commit", b"x")),
        "good.zip": zipped(("docs/a.txt", b"a"), ("b.txt", b"b")),
    }
    for name, data in archives.items():
        (box.root / name).write_bytes(data)
    steps = [op("ArchiveExtract", name, f"into/{place}") for place, name in enumerate(archives)]
    ran = await box.run(*steps, options={"failureMode": "ContinueOnError"})
    assert ran.statuses() == "FFFFFS"
    errors = [step["error"] for step in ran.steps[:5]]
    assert all("nothing was extracted" in error for error in errors[:4]), errors
    assert ["268435456 bytes" in error for error in errors] == [True, True, False, False, False]
    assert ran.steps[2]["errorCategory"] == "PathViolation"
    assert texts(box.root / "into") == {"5/b.txt": "b", "5/docs/a.txt": "a"}


async def test_8_time_outs_of_a_step_and_of_the_script(box: Box):
    """A step's time ends its attempt and its processes; the script's ends it, and cleanup still runs."""
    box.make_gate()
    ran = await box.run(
        op("ProcRun", "cat", "gate", stepTimeout="00:00:00.3", maxRetries=1),
        op("ProcessFind", "cat"),
        op("Sleep", "20"),
        op("Echo", "never"),
        options={
            "retryDelay": "00:00:00.05",
            "scriptTimeout": "00:00:04",
            "failureMode": "ContinueOnError",
        },
    )
    assert ran.statuses() == "FSF-"
    first, _, third, _ = ran.steps
    assert (first["errorCategory"], first["attempts"]) == ("Timeout", 2)
    assert ran.said()[1] == "No matching processes."
    assert third["errorCategory"] == "Timeout"
    assert "the script's time of 4 s is over (scriptTimeout)" in third["error"]

    ran = await box.run(
        op("FileWrite", "half.txt", "x"),
        op("Sleep", "20"),
        options={"scriptTimeout": "00:00:00.5", "failureMode": "StopAndCleanup"},
        cleanup=(op("FileDelete", "half.txt"),),
    )
    assert ran.statuses() == "SFS"
    assert texts(box.root) == {}


URLS = (
    *("http://localhost/", "http://127.0.0.1/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.8/"),
    *("http://[::1]/", "http://[::ffff:10.0.0.1]/", "http://2130706433/", "https://example.com:8443/"),
    *("http://user@example.com/", "ftp://example.com/", "file:///etc/passwd"),
)


async def test_9_http_is_refused(box: Box):
    """By the text before anything runs; by the network that is not there; by the address that a name leads to."""
    for url in URLS:
        assert (await box.refused(op("HttpGet", url))).startswith("mk8.shell URL violation: "), url
    ran = await box.run(
        op("HttpGet", "http://example.com/"),
        op("HttpPost", "https://example.com/", "{}"),
        op("NetTcpConnect", "example.com", "80", "1"),
        op("NetPing", "example.com"),
        op("NetDns", "example.com"),
        options={"failureMode": "ContinueOnError"},
    )
    assert ran.statuses() == "FFFFF"
    assert all("this sandbox has no network" in step["error"] for step in ran.steps)
    box.table["network"] = "open"
    (box.root / "url.txt").write_text("http://169.254.169.254/")
    ran = await box.run(
        op("HttpGet", "http://sandbox/"),  # the container itself, by its own name
        op("FileRead", "url.txt"),
        op("HttpGet", "$PREV"),
        options={"failureMode": "ContinueOnError", "pipeStepOutput": True},
    )
    assert ran.statuses() == "FSF"
    assert [ran.steps[place]["errorCategory"] for place in (0, 2)] == ["UrlViolation", "UrlViolation"]


async def test_10_path_violations(box: Box):
    """Whatever leads out, or to what tools would run, is refused before anything runs, and after substitution."""
    for begins, wrong in (
        ("mk8.shell path violation: ", op("FileRead", "../outside/secret")),
        ("mk8.shell path violation: ", op("FileRead", "/etc/passwd")),
        ("mk8.shell path violation: ", op("FileWrite", "a/../../b", "x")),
        ("mk8.shell path violation: ", op("FileRead", "$WORKSPACE/../x")),
        ("mk8.shell compile error [FileGlob", op("FileGlob", ".", "../*")),
        ("mk8.shell compile error [FileWrite", op("FileWrite", "app.js", "x")),
        ("mk8.shell compile error [FileWrite", op("FileWrite", ".git/hooks/pre-commit", "x")),
        ("mk8.shell compile error [FileMove", op("FileMove", ".git/config", "x")),
        ("mk8.shell compile error [DirDelete", op("DirDelete", ".")),
        ("mk8.shell compile error [ProcRun", op("ProcRun", "./git", "status")),
        ("mk8.shell compile error [ProcRun", op("ProcRun", "tar", "-cf", ".git/x.tar", "src")),
        ("mk8.shell compile error [ProcRun", op("ProcRun", "bash", "-c", "id")),
    ):
        said = await box.refused(op("FileWrite", "first.txt", "x"), wrong)
        assert said.startswith(begins), (wrong, said)
        assert "step 1: operations[1]" in said
    (box.root / "where.txt").write_text("../outside/secret")
    ran = await box.run(
        op("FileRead", "where.txt"),
        op("FileRead", "$PREV", maxRetries=2),
        options={"pipeStepOutput": True},
    )
    assert ran.failure()[:2] == (1, "PathViolation")
    assert ran.steps[1]["attempts"] == 1


async def test_11_the_blacklist(workspace: Path):
    """A term ends the script before it runs; one that only the run knows ends the step; configuration adds terms."""
    box = Box(workspace, env={"MK8_BLACKLIST": "frobnicate, x"})
    box.configure(CustomBlacklist=["quux"])
    (box.root / "in.txt").write_text("a && b")
    for term, wrong in (
        ("rm -rf /", op("Echo", "sudo RM -RF /")),
        ("frobnicate", op("Echo", "Frobnicate it")),
        ("quux", op("TextTrim", "a quux")),
        ("mk8.shell.key", op("Echo", "mk8.shell.key")),
        ("`", op("FilePatch", "in.txt", patches=[{"find": "a", "replace": "`"}])),
        ("halt", op("FileTemplate", "out.txt", template={"source": "in.txt", "values": {"A": "asphalt"}})),
        ("&&", op("ForEach", forEach={"items": ["a&&b"], "body": op("Echo", "$ITEM")})),
    ):
        said = await box.refused(op("FileWrite", "first.txt", "x"), wrong)
        assert said.startswith(f"Gigablacklisted term not allowed: [{term}]"), said
    ran = await box.run(op("FileRead", "in.txt"), op("FileWrite", "out.txt", "$PREV"), options={"pipeStepOutput": True})
    assert ran.failure()[:2] == (1, "GigaBlacklist")
    assert texts(box.root) == {"in.txt": "a && b"}
    ran = await box.run(op("Mk8Blacklist"))
    assert {"frobnicate", "quux", "&&"} <= set(str(ran.said()[0]).splitlines())


async def test_12_an_included_fragment(box: Box):
    """Its operations are the script's own, under the same rules; an id that nobody registered is a mistake."""
    box.configure(
        Fragments={
            "Prepare.v1": [op("DirCreate", "work"), op("FileWrite", "work/$USER.txt", "$GREETING")],
            "bad": [op("FileWrite", "../x", "x")],
        }
    )
    ran = await box.run(op("Include", "prepare.V1"), op("DirList", "work"))
    assert [step["verb"] for step in ran.steps] == ["DirCreate", "FileWrite", "DirList"]
    assert texts(box.root) == {"work/sandbox.txt": "hello"}
    assert (await box.refused(op("Include", "bad"))).startswith("mk8.shell path violation: ")
    assert "other" in await box.refused(op("Include", "other"))


# What surrounds a script.


async def test_a_changed_environment_is_refused_at_the_next_execution(box: Box):
    """Whoever can write the signed file, but has no key, stops the sandbox and gains nothing."""
    assert (await box.run(op("Echo", "$GREETING"))).said() == ["hello"]
    (signed,) = box.home.glob("env/*/mk8.shell.signed.env")
    signed.write_text(signed.read_text().replace("hello", "changed"))
    assert (await box.refused(op("Echo", "$GREETING"))).startswith("mk8.shell signature error: ")
    path = box.registry.env_path(ID)
    path.write_text(path.read_text().replace("hello", "edited"))
    box.registry.resign(ID)
    assert (await box.run(op("Echo", "$GREETING"))).said() == ["edited"]


async def test_links_that_are_planted_while_a_script_runs_lead_nowhere(box: Box):
    """The compiler saw folders; what the steps find in their place is refused, and nothing there is read or written."""
    for name in ("etc", "up", "host"):
        (box.root / name).mkdir()

    def plant() -> None:
        for name, target in (("etc", "/etc"), ("up", ".."), ("host", str(box.outside)), ("home", "/home/sandbox")):
            if (box.root / name).exists():
                (box.root / name).rmdir()
            (box.root / name).symlink_to(target)
        (box.root / "file.txt").symlink_to("/etc/passwd")

    ran = await box.run(
        WAIT,
        op("FileRead", "etc/passwd"),
        op("FileRead", "file.txt"),
        op("FileWrite", "etc/new.txt", "x"),
        op("FileWrite", "up/new.txt", "x"),
        op("FileWrite", "host/new.txt", "x"),
        op("FileWrite", "home/new.txt", "x"),
        op("FileCopy", "host/secret", "stolen.txt"),
        op("DirTree", "etc"),
        op("DirDelete", "host"),
        op("ProcRun", "cat", "etc/passwd"),
        op("ProcRun", "tar", "-cf", "stolen.tar", "etc"),
        op("FileAppend", "file.txt", "x"),
        options={"failureMode": "ContinueOnError"},
        listen=within_gate(box, plant),
    )
    assert ran.statuses() == "S" + "F" * 12
    assert {step["errorCategory"] for step in ran.steps[1:]} == {"PathViolation"}
    assert {path.name for path in box.root.iterdir()} == {"gate", "etc", "up", "host", "home", "file.txt"}


async def test_steps_are_told_as_they_happen(box: Box):
    """An event arrives while the script still runs."""
    begun = asyncio.Event()
    open_gate = box.make_gate()

    def listen(event: Mapping[str, Any]) -> None:
        if event.get("event") == "step_started" and event["stepIndex"] == 1:
            begun.set()

    running = asyncio.ensure_future(box.run(op("Echo", "first"), WAIT, op("Echo", "last"), listen=listen))
    await asyncio.wait_for(begun.wait(), 30)
    assert not running.done()
    await open_gate()
    ran = await asyncio.wait_for(running, 30)
    told = [(event["event"], event.get("step", event)["stepIndex"]) for event in ran.events[:6]]
    assert told == [(name, index) for index in range(3) for name in ("step_started", "step_finished")]
    assert [event["type"] for event in ran.events[-2:]] == ["mk8_result", "mk8_job"]
    assert ran.events[-1]["status"] == "Completed"


async def test_nothing_is_kept_between_scripts(box: Box):
    """Neither captures nor `$PREV` nor processes; only the files of the workspace."""
    await box.run(op("Echo", "kept", captureAs="X"), op("FileWrite", "file.txt", "kept"))
    ran = await box.run(
        op("Echo", "$X $PREV."),
        op("SysProcessList"),
        op("FileRead", "file.txt"),
        options={"pipeStepOutput": True},
    )
    assert (ran.said()[0], ran.said()[2]) == ("$X .", "kept")
    assert [line.split("\t")[1] for line in str(ran.said()[1]).splitlines()] == [".sandbox-init", "python3"]


RULES = """
default = "allow"
[[rule]]
name = "no scripts"
decision = "refuse"
because = "not on this machine"
program = "mk8.shell"
matches = ["mk8.shell"]
"""


async def test_the_operators_rules_hold_for_scripts(box: Box, tmp_path: Path):
    """A rule about `mk8.shell` refuses every script, whatever the permissions say."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    box.settings["rules"] = rules
    assert "no scripts: not on this machine" in await box.refused(op("FileWrite", "a.txt", "x"))


async def test_system_and_network_verbs_see_only_the_container(box: Box, monkeypatch: pytest.MonkeyPatch):
    """Its name, its two processes, no interface, no log, and no variable and no path of the host's."""
    monkeypatch.setenv("EDITOR", "of-the-host")
    ran = await box.run(
        *(op(verb) for verb in ("SysHostname", "SysWhoAmI", "SysPwd", "SysNetInfo", "EnvList", "SysServiceList")),
        *(op(verb) for verb in ("SysDriveList", "SysProcessList", "SysLogSources", "SysUptime", "Mk8Info")),
        op("SysLogRead", "syslog"),
        op("EnvGet", "AWS_SECRET_ACCESS_KEY"),
        options={"failureMode": "ContinueOnError"},
    )
    assert ran.statuses() == "S" * 12 + "F"
    said = {step["verb"]: step["output"] for step in ran.steps}
    assert (said["SysHostname"], said["SysWhoAmI"], said["SysPwd"]) == ("sandbox", "sandbox", "/workspace")
    assert len(said["SysProcessList"].splitlines()) == 2
    assert said["SysNetInfo"] == "There is no network interface besides loopback."
    assert said["SysLogRead"] == "The log 'syslog' is not kept in this sandbox."
    assert int(said["SysUptime"].removesuffix("s")) < 60
    assert "of-the-host" not in ran.text
    assert str(box.root.parent) not in ran.text


HOOK = "#!/bin/sh\ntouch /workspace/pwned\n"


async def test_git_runs_no_hook_and_leaves_protected_branches_alone(workspace: Path):
    """Hooks and helpers that lie in the repository do not run; no vocabulary makes a protected branch usable."""
    box = Box(workspace, env={"MK8_VOCAB_BranchNames": "main,feature/search", "MK8_VOCAB_RemoteNames": "here"})
    git = "ProcRun", "git"
    ran = await box.run(
        op(*git, "init"),
        op("FileWrite", "a.txt", "1"),
        op(*git, "add", "a.txt"),
        op(*git, "commit", "-m", "Initial commit"),
    )
    assert ran.failure()[:2] == (3, "Compile")
    assert "protected branch" in ran.failure()[2]
    for command in ("checkout main", "checkout -b MAIN", "switch -c release/1", "push here main", "merge main"):
        assert (await box.refused(op(*git, *command.split()))).startswith("mk8.shell compile error [ProcRun")
    hooks = box.root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "commit-msg", "post-commit", "post-checkout", "reference-transaction"):
        (hooks / name).write_text(HOOK)
        (hooks / name).chmod(0o755)
    with (box.root / ".git/config").open("a") as config:
        config.write("[core]\nhooksPath = /workspace/.git/hooks\n")
        config.writelines(
            f"{name} = touch /workspace/pwned\n" for name in ("fsmonitor", "pager", "editor", "sshCommand")
        )
    ran = await box.run(
        op(*git, "checkout", "-b", "feature/search"),
        op(*git, "status", "--short"),
        op(*git, "commit", "-m", "Add API module"),
        op(*git, "log", "--oneline"),
        op(*git, "commit"),
    )
    assert ran.statuses() == "SSSSF"
    assert ran.said()[1] == "A  a.txt\n"
    assert str(ran.said()[3]).endswith("Add API module\n")
    assert not (box.root / "pwned").exists()


async def test_an_image_without_python_says_what_is_missing(box: Box):
    """And nothing has run."""
    settings = Settings(spares=0, tools={"mk8": box.table})
    async with Provider(image="sandbox-provider/minimal", settings=settings) as provider:
        payload = {"sandboxId": ID, "script": {"operations": [op("FileWrite", "a.txt", "x")]}}
        reply = await provider.call(TOOL, payload, workspace=box.root)
    assert "mk8.shell needs python3 in the image" in reply.content
    assert texts(box.root) == {}
