"""
The 128 commands that ProcRun may run, as data: fixed words, flags, and slots that take a value of one kind. Whatever is
not here cannot be run. Slots for what a program writes or removes are WRITE, under the rules for writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

READ, WRITE, GUNZIP, CHOICE, NUMBER, WORD, BRANCH, COMPOUND, FREETEXT = (
    *("read", "write", "gunzip", "choice", "number", "word", "branch", "compound", "freetext"),
)
"""Kinds of slots. GUNZIP is a .gz file that is replaced by its content; WORD an entry of a word list; BRANCH one of
BranchNames that is not protected; COMPOUND a project's name; FREETEXT words of a list, or any text where that is on."""


_FEW: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    kind: str
    many: bool = False
    """One or more. Only the last slot of a template can be so."""
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    """The bounds of a NUMBER; of a FREETEXT, its longest text."""
    words: str = ""
    """The word list's name."""
    form: str = ""
    """What a FREETEXT must look like besides: `tag` or `identifier`."""

    @property
    def described(self) -> str:
        match self.kind:
            case "choice":
                text = "|".join(self.choices) if len(self.choices) <= _FEW else "program"
            case "number":
                text = f"{self.least}-{self.most}"
            case "word" | "branch" | "freetext":
                text = self.words
            case "compound":
                text = "project name"
            case "write" | "gunzip":
                text = "path (written)"
            case _:
                text = "path"
        return f"<{text}>" + ("..." if self.many else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    description: str
    """Its name: in Mk8Templates, and as the key of FreeText's settings."""
    binary: str
    prefix: tuple[str, ...]
    flags: dict[str, Slot | None]
    """With the value that each takes, if any."""
    required: tuple[str, ...] = ()
    """Flags that must be there."""
    slots: tuple[Slot, ...] = ()
    slots_first: bool = False
    """Whether the program wants them before the flags: an option's value, or what the flags are about."""

    @property
    def usage(self) -> str:
        flags = (
            (name if value is None else f"{name} {value.described}", name in self.required)
            for name, value in self.flags.items()
        )
        shown = [text if needed else f"[{text}]" for text, needed in flags]
        slots = [slot.described for slot in self.slots]
        rest = [*slots, *shown] if self.slots_first else [*shown, *slots]
        return " ".join((self.binary, *self.prefix, *rest))


def _template(
    description: str,
    command: str,
    *slots: Slot,
    flags: str = "",
    values: dict[str, Slot] | None = None,
    required: tuple[str, ...] = (),
    slots_first: bool = False,
) -> Template:
    binary, *prefix = command.split()
    return Template(
        description=description,
        binary=binary,
        prefix=tuple(prefix),
        flags={**dict.fromkeys(flags.split()), **(values or {})},
        required=required,
        slots=slots,
        slots_first=slots_first,
    )


def _number(least: int, most: int) -> Slot:
    return Slot(kind=NUMBER, least=least, most=most)


def _word(words: str) -> Slot:
    return Slot(kind=WORD, words=words)


def _choice(*choices: str) -> Slot:
    return Slot(kind=CHOICE, choices=choices)


def _free(words: str, most: int, form: str = "") -> Slot:
    return Slot(kind=FREETEXT, words=words, most=most, form=form)


_READ: Final = Slot(kind=READ)
_READS: Final = Slot(kind=READ, many=True)
_WRITE: Final = Slot(kind=WRITE)
_REMOTE: Final = _word("RemoteNames")
_BRANCH: Final = Slot(kind=BRANCH, words="BranchNames")
_MESSAGE: Final = {"-m": _free("CommitWords", 200)}
_TAG: Final = _free("TagNames", 128, "tag")
_LOG_COUNT: Final = {"-n": _number(1, 100)}

PROTECTED_BRANCHES: Final = ("main", "master", "develop", "staging", "production", "live", "release", "trunk")
"""And everything below `release/`. No word list makes one of them available."""


def is_protected(branch: str) -> bool:
    folded = branch.lower().removeprefix("refs/").removeprefix("heads/")
    return folded in PROTECTED_BRANCHES or folded.startswith("release/")


def _git() -> Iterator[Template]:
    yield _template("git version", "git --version")
    yield _template("git init", "git init")
    yield _template("git status", "git status", flags="--short -s --porcelain --branch")
    log = "--all --no-decorate"
    yield _template("git log", "git log --oneline", flags=f"{log} --graph --reverse", values=_LOG_COUNT)
    yield _template("git log file", "git log --oneline --", _READ, flags=log, values=_LOG_COUNT)
    diff = "--staged --cached"
    yield _template("git diff", "git diff", flags=f"{diff} --stat --name-only --name-status --word-diff")
    yield _template("git diff file", "git diff", _READ, flags=diff)
    yield _template("git branch list", "git branch", flags="--list -a --all -r")
    yield _template("git remote", "git remote", flags="-v")
    yield _template("git remote add", "git remote add", _REMOTE, _word("GitRemoteUrls"))
    yield _template("git remote remove", "git remote remove", _REMOTE)
    yield _template("git rev-parse HEAD", "git rev-parse HEAD")
    yield _template("git rev-parse short HEAD", "git rev-parse --short HEAD")
    yield _template("git ls-files", "git ls-files", flags="--modified --deleted --others --ignored")
    yield _template("git tag list", "git tag --list")
    yield _template("git tag list short", "git tag -l")
    yield _template("git describe", "git describe", flags="--tags --always --long", values={"--abbrev": _number(1, 40)})
    yield _template("git stash show", "git stash show", flags="--stat --patch -p")
    yield _template("git blame", "git blame", _READ, values={"-L": _word("BlameLineRanges")})
    yield _template("git clean preview", "git clean -n", flags="-d")
    yield _template("git clean dry-run", "git clean --dry-run", flags="-d")
    yield _template("git count-objects", "git count-objects", flags="-v -H")
    yield _template("git cherry", "git cherry", flags="-v")
    yield _template("git shortlog", "git shortlog -sn", flags="--all --no-merges")
    yield _template("git commit count", "git rev-list --count HEAD")

    yield _template("git add paths", "git add", _READS)
    yield _template("git add current", "git add .")
    yield _template("git add all", "git add -A")
    yield _template("git commit", "git commit", values=_MESSAGE)
    yield _template("git stash", "git stash")
    yield _template("git stash pop", "git stash pop")
    yield _template("git stash list", "git stash list", flags="--oneline")
    yield _template("git stash drop", "git stash drop")
    yield _template("git tag create", "git tag", _TAG)
    yield _template("git tag annotated", "git tag -a", _TAG, values=_MESSAGE)
    yield _template("git tag delete", "git tag -d", _TAG)
    yield _template("git checkout", "git checkout", _BRANCH)
    yield _template("git checkout new branch", "git checkout -b", _BRANCH)
    yield _template("git switch", "git switch", _BRANCH)
    yield _template("git switch new branch", "git switch -c", _BRANCH)
    yield _template("git clone", "git clone", _word("GitCloneUrls"))
    yield _template("git clone into", "git clone", _word("GitCloneUrls"), _WRITE)
    yield _template("git push", "git push", _REMOTE, _BRANCH)
    yield _template("git push set-upstream", "git push", _REMOTE, _BRANCH, flags="-u --set-upstream")
    yield _template("git push tags", "git push --tags", _REMOTE)
    yield _template("git pull", "git pull", _REMOTE, _BRANCH, flags="--rebase --no-rebase --ff-only")
    yield _template("git merge", "git merge", _BRANCH, flags="--no-ff --ff-only --squash", values=_MESSAGE)
    yield _template("git merge abort", "git merge --abort")


def _dotnet() -> Iterator[Template]:
    configuration = dict.fromkeys(("--configuration", "-c"), _choice("Release", "Debug"))
    levels = _choice("quiet", "minimal", "normal", "detailed", "diagnostic")
    verbosity = dict.fromkeys(("--verbosity", "-v"), levels)
    output = dict.fromkeys(("-o", "--output"), _WRITE)
    for name, command in (
        ("version", "--version"),
        ("info", "--info"),
        ("sdks", "--list-sdks"),
        ("runtimes", "--list-runtimes"),
    ):
        yield _template(f"dotnet {name}", f"dotnet {command}")
    yield _template("dotnet tool list", "dotnet tool list", flags="-g --global")
    yield _template("dotnet sln list", "dotnet sln list")
    yield _template("dotnet list reference", "dotnet list reference")
    packages = "--outdated --deprecated --vulnerable --include-transitive"
    yield _template("dotnet list package", "dotnet list package", flags=packages, values={"--format": _choice("json")})
    sources = {"--format": _choice("json", "Detailed", "Short")}
    yield _template("dotnet nuget list source", "dotnet nuget list source", values=sources)
    yield _template("dotnet workload list", "dotnet workload list")
    yield _template("dotnet sdk check", "dotnet sdk check")
    made = {**configuration, **output, **verbosity}
    yield _template("dotnet build", "dotnet build", flags="--no-restore", values=made)
    yield _template("dotnet publish", "dotnet publish", flags="--no-restore", values=made)
    tested = {**configuration, **verbosity}
    yield _template("dotnet test", "dotnet test", flags="--no-restore --no-build", values=tested)
    yield _template("dotnet clean", "dotnet clean", values=tested)
    yield _template("dotnet restore", "dotnet restore", flags="--no-cache", values=verbosity)
    yield _template("dotnet format", "dotnet format", flags="--verify-no-changes", values=verbosity)
    named = {**dict.fromkeys(("-n", "--name"), Slot(kind=COMPOUND, words="ProjectSuffixes")), **output}
    yield _template("dotnet new", "dotnet new", _word("DotnetTemplates"), values=named, slots_first=True)
    migration = _free("MigrationNames", 128, "identifier")
    yield _template("dotnet ef migrations add", "dotnet ef migrations add", migration)
    yield _template("dotnet ef migrations list", "dotnet ef migrations list")
    yield _template("dotnet ef migrations script", "dotnet ef migrations script", flags="--idempotent", values=output)
    yield _template("dotnet ef dbcontext info", "dotnet ef dbcontext info")
    yield _template("dotnet ef dbcontext list", "dotnet ef dbcontext list")


def _node() -> Iterator[Template]:
    yield _template("node version", "node --version")
    yield _template("npm version", "npm --version")
    listed = "--all --json --prod --dev --long"
    yield _template("npm ls", "npm ls", flags=listed, values={"--depth": _number(0, 10)})
    yield _template("npm outdated", "npm outdated", flags="--json")
    yield _template("npm audit", "npm audit", flags="--json --production", values={"--omit": _choice("dev")})
    yield _template("npm cache verify", "npm cache verify")
    for name in ("doctor", "fund", "prefix"):
        yield _template(f"npm {name}", f"npm {name}")


def _archives() -> Iterator[Template]:
    yield _template("tar list", "tar -tf", _READ)
    yield _template("tar list verbose", "tar -tvf", _READ)
    yield _template("tar create", "tar -cf", _WRITE, _READS)
    yield _template("tar create gzip", "tar -czf", _WRITE, _READS)
    yield _template("gzip", "gzip", _WRITE)  # the file itself goes
    yield _template("gunzip", "gunzip", Slot(kind=GUNZIP))
    yield _template("zip", "zip", _WRITE, _READS)
    yield _template("unzip list", "unzip -l", _READ)


def _readers() -> Iterator[Template]:
    yield _template("cat", "cat", _READ)
    yield _template("head", "head -n", _number(1, 1000), _READ)
    yield _template("tail", "tail -n", _number(1, 1000), _READ)
    yield _template("wc lines", "wc -l", _READ)
    yield _template("wc words", "wc -w", _READ)
    yield _template("wc bytes", "wc -c", _READ)
    yield _template("sort", "sort", _READ)
    yield _template("uniq", "uniq", _READ)
    yield _template("diff", "diff", _READ, _READ)
    yield _template("sha256sum", "sha256sum", _READ)
    yield _template("md5sum", "md5sum", _READ)
    yield _template("base64 encode", "base64", _READ)
    yield _template("base64 decode", "base64 -d", _READ)


_VERSIONED: Final = (
    *("python3", "ruby", "perl", "php", "java", "javac", "rustc", "swift", "cmake", "gcc", "g++", "clang"),
    *("docker", "deno", "bun", "terraform"),
)


def _versions() -> Iterator[Template]:
    for name in _VERSIONED:
        yield _template(f"{name} version", f"{name} --version")
    yield _template("go version", "go version")
    yield _template("kubectl version", "kubectl version --client")


def _certificates() -> Iterator[Template]:
    for name in ("text", "enddate", "subject", "issuer", "serial", "fingerprint"):
        yield _template(
            f"openssl x509 {name}",
            "openssl x509 -in",
            _READ,
            flags=f"-noout -{name}" + (" -sha256" if name == "fingerprint" else ""),
            required=("-noout", f"-{name}"),
            slots_first=True,
        )


def _finders() -> Iterator[Template]:
    programs = (
        *("dotnet", "git", "node", "npm", "cargo", "tar", "gzip", "gunzip", "zip", "unzip", "openssl", "cat", "head"),
        *("tail", "wc", "sort", "uniq", "diff", "sha256sum", "md5sum", "base64", "python3", "ruby", "perl", "php"),
        *("java", "javac", "go", "rustc", "swift", "cmake", "gcc", "g++", "clang", "docker", "kubectl", "deno"),
        *("bun", "terraform"),
    )
    yield _template("which", "which", _choice(*programs))
    yield _template("where", "where", _choice(*programs))


TEMPLATES: Final = (
    *_git(),
    *_dotnet(),
    *_node(),
    _template("cargo version", "cargo --version"),
    *_archives(),
    *_readers(),
    *_versions(),
    *_certificates(),
    *_finders(),
)
BY_BINARY: Final[dict[str, tuple[Template, ...]]] = {
    name: tuple(template for template in TEMPLATES if template.binary == name)
    for name in dict.fromkeys(template.binary for template in TEMPLATES)
}
BY_FIRST_WORD: Final[dict[tuple[str, str], tuple[Template, ...]]] = {
    (name, word): tuple(template for template in BY_BINARY[name] if (template.prefix or ("",))[0] == word)
    for name, word in dict.fromkeys((template.binary, (template.prefix or ("",))[0]) for template in TEMPLATES)
}
"""By program and the first fixed word, which is empty where there is none: git has 48."""
BLOCKED: Final = frozenset(
    {
        *("bash", "sh", "zsh", "fish", "dash", "csh", "tcsh", "ksh"),
        *("cmd", "cmd.exe", "powershell", "powershell.exe", "pwsh", "pwsh.exe"),
        *("python", "python2", "python3", "pip", "pip3", "perl", "ruby", "lua", "php", "tclsh", "wish", "npx"),
        *("env", "xargs", "nohup", "setsid", "script", "expect", "screen", "tmux", "strace", "ltrace"),
        *("sudo", "su", "doas", "pkexec", "runuser", "chroot", "nsenter", "runas", "gsudo"),
        *("chmod", "chown", "chgrp", "mount", "umount", "iptables", "ip6tables", "nft", "systemctl", "service"),
        *("init", "journalctl", "dd", "mkfs", "fdisk", "parted", "visudo", "passwd", "useradd", "usermod"),
        *("groupadd", "setenforce", "getenforce", "crontab", "at", "atq", "atrm", "nc", "ncat", "socat", "netcat"),
        *("ssh", "scp", "sftp", "rsync", "curl", "wget", "make", "cmake", "echo", "grep", "jq", "find"),
    }
)
"""Never run, whatever a template says, but for the exceptions below."""
VERSION_ONLY: Final = frozenset({"python3", "ruby", "perl", "php", "cmake"})
"""Blocked, but for exactly `--version`."""
NO_FREETEXT: Final = frozenset(
    {
        *("bash", "sh", "zsh", "cmd", "powershell", "pwsh", "python", "python3", "ruby", "perl", "lua", "php"),
        *("node", "npx", "deno", "bun", "sudo", "su", "chmod", "chown", "curl", "wget", "ssh", "scp"),
    }
)
"""Programs that would do something with a text: none of their slots is ever free."""
