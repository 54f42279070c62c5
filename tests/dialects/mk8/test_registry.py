"""What `dialects.mk8.registry` promises: whose sandbox it is, and that nobody else wrote its environment."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provider.dialects.mk8.errors import ContainerError, SandboxNotFound, SignatureError
from provider.dialects.mk8.registry import KEY_BYTES, SEPARATOR, Registry, env_text, parse_env, verify
from provider.errors import CallError, ConfigError

NOON = dt.datetime(2026, 3, 1, 12, 0, 5, tzinfo=dt.UTC)


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "mk8.shell", clock=lambda: NOON)


@pytest.fixture
def box(registry, tmp_path):
    return registry.register("Box1", tmp_path / "root", {"GREETING": "hello"})


def signed_path(registry: Registry) -> Path:
    return registry.folder / "env" / "box1" / "mk8.shell.signed.env"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# What is there after a registration.


def test_a_registered_sandbox_is_found_in_any_case(registry, box, tmp_path):
    """Ids are looked up without regard to case, and keep the case that they were given."""
    assert registry.get("bOX1") == box
    assert (box.id, box.root, box.registered_at) == ("Box1", tmp_path / "root", NOON)
    assert registry.list() == (box,)
    assert registry.read_env("BOX1") == {"MK8_SANDBOX_ID": "Box1", "GREETING": "hello"}


def test_the_files_are_as_the_contract_says(registry, box):
    """Registry, key, both environment files and the history have their names, shapes and modes."""
    folder = registry.folder
    assert json.loads((folder / "sandboxes.json").read_text()) == {
        "Box1": {"rootPath": str(box.root), "registeredAtUtc": "2026-03-01T12:00:05+00:00"}
    }
    key, text = (folder / "mk8.shell.key").read_bytes(), (folder / "env/box1/mk8.shell.env").read_text()
    assert len(key) == KEY_BYTES
    assert text == "GREETING=hello\nMK8_SANDBOX_ID=Box1\n"
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    assert signed_path(registry).read_text() == f"{text}\n---MK8-SIGNATURE---\n{signature}"
    history = folder / "history" / "Box1_20260301_120005.signed.env"
    assert history.read_bytes() == signed_path(registry).read_bytes()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {mode(path) for path in files} == {0o600}
    assert {mode(path) for path in (folder, *folder.rglob("*")) if path.is_dir()} == {0o700}


def test_nothing_of_it_lies_in_the_root(registry, box):
    """What a script can write has neither environment nor key in it."""
    assert list(box.root.iterdir()) == []


def test_every_signature_is_kept(registry, box):
    """The history has each signed file, also of the same second."""
    registry.update("box1", {"N": "2"})
    registry.update("box1", {"N": "3"})
    texts = [parse_env(path.read_text().rpartition(SEPARATOR)[0]) for path in (registry.folder / "history").iterdir()]
    assert sorted(env.get("N", "1") for env in texts) == ["1", "2", "3"]


def test_the_key_is_made_once(registry, box, tmp_path):
    """A second sandbox is signed with the key of the first."""
    key = (registry.folder / "mk8.shell.key").read_bytes()
    registry.register("Box2", tmp_path / "two")
    assert (registry.folder / "mk8.shell.key").read_bytes() == key
    assert registry.read_env("box1")["GREETING"] == "hello"


# What is refused.


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "../x", "a/b", "box_1", "box-1", "ä", "a\n", "box1.", "٣"])
def test_other_ids_are_refused(registry, tmp_path, name):
    """An id is 1 to 64 letters and digits; anything else is refused, and found nowhere."""
    with pytest.raises(CallError, match="1 to 64 letters and digits"):
        registry.register(name, tmp_path / "root")
    with pytest.raises(SandboxNotFound, match="is not registered"):
        registry.get(name)


@pytest.mark.parametrize("name", ["a", "Z" * 64, "007"])
def test_ids_at_the_limits_are_taken(registry, tmp_path, name):
    """One character and sixty-four are an id."""
    assert registry.register(name, tmp_path / "root").id == name


def test_an_id_is_taken_once_in_any_case(registry, box, tmp_path):
    """`box1` is `Box1`."""
    with pytest.raises(CallError, match="registered already"):
        registry.register("bOX1", tmp_path / "other")


def test_an_unknown_sandbox_is_not_found(registry):
    """Every use of an unknown id says that it is not registered, in the contract's words."""
    for use in (registry.get, registry.read_env, registry.open, registry.resign, registry.unregister):
        with pytest.raises(SandboxNotFound, match=r"^mk8.shell sandbox 'nobody' is not registered") as caught:
            use("nobody")
        assert caught.value.category == "SandboxNotFound"


def _file(root: Path) -> None:
    (root / "file").write_text("")


@pytest.mark.parametrize(
    ("prepare", "match"),
    [
        (lambda root: (root.mkdir(), _file(root)), "not empty"),
        (lambda root: (root.mkdir(), (root / ".hidden").mkdir()), "not empty"),
        (lambda root: root.write_text("a file"), "cannot be a sandbox's folder"),
        (lambda root: (root.with_name("real").mkdir(), root.symlink_to(root.with_name("real"))), "is a link"),
        (lambda root: root.symlink_to("/nowhere"), "is a link"),
    ],
)
def test_a_root_is_a_new_or_empty_folder(registry, tmp_path, prepare, match):
    """A folder with something in it, a file and a link are no roots."""
    root = tmp_path / "root"
    prepare(root)
    with pytest.raises(CallError, match=match):
        registry.register("box", root)
    assert registry.list() == ()


def test_an_empty_folder_will_do(registry, tmp_path):
    """The root may be there already."""
    (tmp_path / "root").mkdir()
    registry.register("box", tmp_path / "root")


@pytest.mark.parametrize("root", ["mk8.shell", "mk8.shell/inner", ".", "root/inner", "link/root"])
def test_roots_do_not_lie_in_each_other(registry, box, tmp_path, root):
    """No sandbox has the registry, or another sandbox, within its reach, nor through a link on the way."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(CallError, match="lie in each other"):
        registry.register("box2", tmp_path / root)


def test_links_on_the_way_are_resolved_once(registry, tmp_path):
    """What is registered is the real path, so that a link changed later changes nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert registry.register("box", tmp_path / "link" / "root").root == tmp_path / "real" / "root"


def _swap_for_link(root: Path) -> None:
    root.rmdir()
    root.symlink_to("/etc")


def _move_parent(root: Path) -> None:
    parent = root.parent
    parent.rename(parent.with_name("moved"))
    parent.symlink_to(parent.with_name("moved"))


@pytest.mark.parametrize("change", [Path.rmdir, _swap_for_link, _move_parent])
def test_a_root_that_is_another_one_now_is_not_opened(registry, tmp_path, change):
    """A root that is gone, or is reached through a link by now, is an error of the container."""
    root = tmp_path / "parent" / "root"
    registry.register("box", root)
    change(root)
    with pytest.raises(ContainerError, match=r"^mk8.shell container error: .*gone, or a link"):
        registry.open("box")


# Whether it is what was signed.

TAMPERED = {
    "a changed value": lambda text: text.replace("hello", "bye"),
    "an added line": lambda text: f"EVIL=1\n{text}",
    "no separator": lambda text: text.replace("---MK8-SIGNATURE---", "---"),
    "no signature": lambda text: text.rpartition("\n")[0] + "\n",
    "no hexadecimal digits": lambda text: text[:-1] + "g",
    "capitals": lambda text: text.rpartition("\n")[0] + "\n" + text.rpartition("\n")[2].upper(),
    "a shorter one": lambda text: text[:-2],
    "a longer one": lambda text: text + "00",
    "another digit": lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
    "an empty file": lambda text: "",
    "appended with a copy of the signature": lambda text: text + "\nEVIL=1" + SEPARATOR + text.rpartition("\n")[2],
    "put before, with a signature of its own": lambda text: "EVIL=1" + SEPARATOR + "0" * 64 + "\n" + text,
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_changed_environment_is_refused(registry, box, name):
    """Any change after the signature is a signature error, at the very next reading."""
    path = signed_path(registry)
    assert registry.read_env("box1")["GREETING"] == "hello"
    path.write_text(TAMPERED[name](path.read_text()))
    for read in (registry.read_env, registry.open):
        with pytest.raises(SignatureError, match=r"^mk8.shell signature error: ") as caught:
            read("box1")
        assert caught.value.category == "Signature"


def test_the_last_separator_counts(registry, box):
    """A separator inside the environment is part of what is signed."""
    path = registry.env_path("box1")
    path.write_text(f"MK8_SANDBOX_ID=Box1\nA=1{SEPARATOR}{'0' * 64}\nB=2\n")
    registry.resign("box1")
    assert registry.read_env("box1") == {"MK8_SANDBOX_ID": "Box1", "A": "1", "B": "2"}


def test_another_sandboxs_environment_is_refused(registry, box, tmp_path):
    """A properly signed file is refused in the wrong place."""
    registry.register("other", tmp_path / "other", {"GREETING": "not yours"})
    foreign = (registry.folder / "env/other/mk8.shell.signed.env").read_bytes()
    signed_path(registry).write_bytes(foreign)
    with pytest.raises(SignatureError, match="another sandbox's"):
        registry.read_env("box1")


def test_the_edited_file_counts_for_nothing_until_it_is_signed(registry, box):
    """What somebody writes into mk8.shell.env is read by `resign` alone."""
    path = registry.env_path("box1")
    path.write_text("GREETING=edited\n")
    assert registry.read_env("box1")["GREETING"] == "hello"
    registry.resign("BOX1")
    assert registry.read_env("box1") == {"MK8_SANDBOX_ID": "Box1", "GREETING": "edited"}
    assert path.read_text() == "MK8_SANDBOX_ID=Box1\nGREETING=edited\n"


def test_an_environment_cannot_be_signed_for_another(registry, box):
    """A hand edit that changes the id is refused."""
    registry.env_path("box1").write_text("MK8_SANDBOX_ID=other\n")
    with pytest.raises(CallError, match="leave the line as it was"):
        registry.resign("box1")


def test_update_replaces_all(registry, box):
    """After an update, the old variables are gone and the id is there."""
    registry.update("box1", {"other": "1"})
    assert registry.read_env("box1") == {"MK8_SANDBOX_ID": "Box1", "OTHER": "1"}


def _link_to_copy(path: Path) -> None:
    copy = path.with_name("copy")
    path.rename(copy)
    path.symlink_to(copy)


BAD_KEYS = {
    "missing": Path.unlink,
    "short": lambda path: path.write_bytes(b"short"),
    "long": lambda path: path.write_bytes(b"x" * (KEY_BYTES + 1)),
    "readable by others": lambda path: path.chmod(0o644),
    "a link": _link_to_copy,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a fifo": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_key_that_is_not_ours_alone_verifies_nothing(registry, box, name):
    """Missing, of another length, readable by others or no plain file: a signature error, and no new key."""
    path = registry.folder / "mk8.shell.key"
    BAD_KEYS[name](path)
    with pytest.raises(SignatureError, match="the key"):
        registry.read_env("box1")
    assert name != "missing" or not path.exists()


@pytest.mark.parametrize("replace", [_link_to_copy, lambda path: (path.unlink(), os.mkfifo(path))])
def test_the_signed_file_is_a_plain_file(registry, box, replace):
    """A link or a fifo in its place is refused, and nothing hangs."""
    replace(signed_path(registry))
    with pytest.raises(SignatureError, match="cannot be read"):
        registry.read_env("box1")


# Forgetting one.


def test_unregistering_keeps_the_files(registry, box):
    """The sandbox is unknown afterwards; its root and its history stay."""
    (box.root / "work.txt").write_text("work")
    assert registry.unregister("BOX1") == box
    with pytest.raises(SandboxNotFound):
        registry.get("box1")
    assert (box.root / "work.txt").exists()
    assert not registry.env_path("box1").exists()
    assert len(list((registry.folder / "history").iterdir())) == 1


def test_unregistering_can_delete_the_files(registry, box, tmp_path):
    """With delete_files the root goes, and nothing that a link in it leads to."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    (box.root / "link").symlink_to(kept)
    registry.unregister("box1", delete_files=True)
    assert not box.root.exists()
    assert (kept / "file").exists()


def test_a_root_that_became_a_link_is_not_deleted_through_it(registry, box, tmp_path):
    """Deleting follows no link in place of the root."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    box.root.rmdir()
    box.root.symlink_to(kept)
    registry.unregister("box1", delete_files=True)
    assert (kept / "file").exists()


# How it is kept.


@pytest.mark.parametrize("text", ["{", "[]", '{"box": {}}', '{"box": {"rootPath": 1, "registeredAtUtc": "x"}}'])
def test_a_broken_registry_is_told_by_name(registry, box, text):
    """Nothing is guessed from a file that cannot be read, and it is not overwritten."""
    path = registry.folder / "sandboxes.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"sandboxes.json cannot be read"):
        registry.list()
    with pytest.raises(ConfigError):
        registry.register("other", registry.folder.parent / "other")
    assert path.read_text() == text


def test_a_folder_that_others_can_write_is_not_used(registry, box):
    """Whoever can write there could exchange the key."""
    registry.folder.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        registry.read_env("box1")


def _register(folder: Path, number: int) -> None:
    Registry(folder).register(f"box{number}", folder.parent / f"root{number}")


def test_registrations_at_the_same_time_are_all_kept(tmp_path):
    """Several processes take turns: no sandbox is lost, and all are signed with one key."""
    folder = tmp_path / "mk8.shell"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_register, args=(folder, number)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    registry = Registry(folder)
    assert [one.id for one in registry.list()] == [f"box{number}" for number in range(8)]
    assert all(registry.read_env(one.id)["MK8_SANDBOX_ID"] == one.id for one in registry.list())


def test_a_write_that_fails_leaves_the_old_file(registry, box, monkeypatch):
    """A registry is replaced as a whole, or stays as it was, with nothing beside it."""
    before = (registry.folder / "sandboxes.json").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        registry.unregister("box1")
    assert (registry.folder / "sandboxes.json").read_bytes() == before
    assert list(registry.folder.glob(".*")) == []


# The environment as text.


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("A=1\nB=2", {"A": "1", "B": "2"}),
        ("  A = 1  \r\n", {"A": "1"}),
        ("# A=1\n\n  # B=2\nC=3", {"C": "3"}),
        ("A", {}),
        ("=1", {}),
        (" = 1", {}),
        ("A=", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("A='1'\nB=\"2\"\nC='3\"", {"A": "1", "B": "2", "C": "'3\""}),
        ("A=\"'x'\"\nB='", {"A": "'x'", "B": "'"}),
        ("a=1\nA=2", {"A": "2"}),
        ("A=1 # no comment", {"A": "1 # no comment"}),
    ],
)
def test_environments_are_read_line_by_line(text, env):
    """Trimmed, comments and lines without a name skipped, one pair of quotes off, the last one wins, in any case."""
    assert parse_env(text) == env


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: len((text + "x").splitlines()) == 1),
        max_size=5,
    ).filter(lambda env: "MK8_SANDBOX_ID" not in env and not any("\0" in value for value in env.values()))
)
def test_what_is_written_is_what_is_read(env):
    """Spaces, quotes and equal signs in a value survive the file."""
    assert parse_env(env_text("Box", env)) == {**env, "MK8_SANDBOX_ID": "Box"}


@pytest.mark.parametrize(
    ("env", "match"),
    [
        ({"A": "1\n2"}, "line break"),
        ({"A": "1\n"}, "line break"),
        ({"A": "1\u2028B=2"}, "line break"),
        ({"A": "\0"}, "line break"),
        ({"A B": "1"}, "no name of a variable"),
        ({"": "1"}, "no name of a variable"),
        ({"1A": "1"}, "no name of a variable"),
        ({"A=B": "1"}, "no name of a variable"),
        ({"MK8_SANDBOX_ID": "other"}, "leave it out"),
    ],
)
def test_variables_that_would_read_otherwise_are_refused(registry, tmp_path, env, match):
    """A value cannot smuggle in a second variable, nor another sandbox's id."""
    with pytest.raises(CallError, match=match):
        registry.register("box", tmp_path / "root", env)


def test_an_environment_has_a_size(registry, box):
    """More than a megabyte is refused when it is signed, not when it is read."""
    with pytest.raises(CallError, match="is the most"):
        registry.update("box1", {"A": "x" * 2**20})
    assert registry.read_env("box1")["GREETING"] == "hello"


def test_verify_gives_the_text_that_was_signed():
    """The text comes back exactly, a trailing newline after the signature does not matter."""
    signature = hmac.new(b"k", b"A=1\n", hashlib.sha256).hexdigest()
    assert verify(f"A=1\n{SEPARATOR}{signature}\n", b"k") == "A=1\n"
