"""ProcRun's commands: each of the 128 templates takes what it is for and refuses what is near it."""

from __future__ import annotations

import pytest

from provider.inside.mk8 import blacklist, words
from provider.inside.mk8.command import check_command
from provider.inside.mk8.compiled import Rules
from provider.inside.mk8.errors import CompileError, InvalidArgument, Mk8Error, PathViolation
from provider.inside.mk8.templates import BLOCKED, BY_BINARY, PROTECTED_BRANCHES, TEMPLATES, VERSION_ONLY, is_protected

URL = "https://example.com/team/app.git"
RULES = Rules(
    blacklist=blacklist.effective(),
    words=words.merged({"GitRemoteUrls": [URL], "GitCloneUrls": [URL]}),
    project_bases=("Shop",),
)


def checked(command: str | list[str], rules: Rules = RULES, **options) -> list[str | None]:
    given = command.split() if isinstance(command, str) else command
    return list(check_command(given, rules, "/workspace", **{"links": False, "relative": True, **options}))


# For each template: what it takes, what the program then gets (None: the same words), and what it refuses.
M = "Fix build errors"
ROWS: list[tuple[str, str | list[str], str | list[str] | None, list[str | list[str]]]] = [
    ("git version", "git --version", None, ["git --version x", "git --VERSION"]),
    ("git init", "git init", None, ["git init sub", "git init --bare", "git Init"]),
    (
        "git status",
        "git status --short --branch",
        None,
        ["git status -b", "git status --short=1", "git status --short --short"],
    ),
    (
        "git log",
        "git log --oneline -n 5 --graph",
        None,
        ["git log", "git log --oneline -n 101", "git log --oneline -n 0", "git log --oneline -p"],
    ),
    (
        "git log file",
        "git log --oneline -- -n 5 a.txt",
        "git log --oneline -n 5 -- ./a.txt",
        ["git log --oneline -- ../a", "git log --oneline -- --graph a", "git log --oneline -- a b"],
    ),
    (
        "git diff",
        "git diff --staged --stat",
        None,
        ["git diff --no-index", "git diff --output=x", "git diff --ext-diff"],
    ),
    ("git diff file", "git diff --cached src", "git diff --cached ./src", ["git diff /etc/passwd", "git diff a b"]),
    ("git branch list", "git branch --list -a", None, ["git branch x", "git branch -D", "git branch -A"]),
    ("git remote", "git remote -v", None, ["git remote -V", "git remote show"]),
    (
        "git remote add",
        ["git", "remote", "add", "origin", URL],
        None,
        ["git remote add origin https://evil.example/x.git", "git remote add x " + URL],
    ),
    (
        "git remote remove",
        "git remote remove Origin",
        "git remote remove origin",
        ["git remote remove x", "git remote remove"],
    ),
    (
        "git rev-parse HEAD",
        "git rev-parse HEAD",
        None,
        ["git rev-parse head", "git rev-parse --git-dir", "git rev-parse HEAD~1"],
    ),
    (
        "git rev-parse short HEAD",
        "git rev-parse --short HEAD",
        None,
        ["git rev-parse --short main", "git rev-parse --short"],
    ),
    ("git ls-files", "git ls-files --others --ignored", None, ["git ls-files x", "git ls-files --stage"]),
    ("git tag list", "git tag --list", None, ["git tag --list x", "git tag --List"]),
    ("git tag list short", "git tag -l", None, ["git tag -l x", "git tag -L"]),
    (
        "git describe",
        "git describe --tags --abbrev 7",
        "git describe --tags --abbrev=7",
        ["git describe --abbrev", "git describe --abbrev=41", "git describe HEAD"],
    ),
    ("git stash show", "git stash show -p", None, ["git stash show -P", "git stash show x"]),
    (
        "git blame",
        "git blame -L 1,10 a.txt",
        "git blame -L 1,10 ./a.txt",
        ["git blame -L 1,11 a.txt", "git blame", "git blame ../a"],
    ),
    ("git clean preview", "git clean -n -d", None, ["git clean -n -f", "git clean -N", "git clean -f"]),
    ("git clean dry-run", "git clean --dry-run -d", None, ["git clean --dry-run -x", "git clean --dry-run x"]),
    ("git count-objects", "git count-objects -v -H", None, ["git count-objects -V", "git count-objects x"]),
    ("git cherry", "git cherry -v", None, ["git cherry main", "git cherry -v x"]),
    ("git shortlog", "git shortlog -sn --all", None, ["git shortlog", "git shortlog -sn -e"]),
    ("git commit count", "git rev-list --count HEAD", None, ["git rev-list --count main", "git rev-list HEAD"]),
    (
        "git add paths",
        "git add a.txt src/b.txt",
        "git add ./a.txt ./src/b.txt",
        ["git add -f a.txt", "git add ../a", "git add", "git add --all"],
    ),
    ("git add current", "git add .", None, ["git add . -f", "git add . .."]),
    ("git add all", "git add -A", None, ["git add -A -f", "git add -a"]),
    (
        "git commit",
        ["git", "commit", "-m", M],
        None,
        [
            ["git", "commit", "-m", "I hacked the mainframe"],
            ["git", "commit", "-m", "Api123"],
            "git commit --amend",
            "git commit -M Fix",
        ],
    ),
    ("git stash", "git stash", None, ["git stash clear", "git stash -u"]),
    ("git stash pop", "git stash pop", None, ["git stash pop x", "git stash Pop"]),
    ("git stash list", "git stash list --oneline", None, ["git stash list -p", "git stash list x"]),
    ("git stash drop", "git stash drop", None, ["git stash drop x", "git stash drop -q"]),
    (
        "git tag create",
        "git tag V1.0.0",
        "git tag v1.0.0",
        ["git tag v9.9.9", ["git", "tag", "stable latest"], "git tag -f v1.0.0", "git tag"],
    ),
    (
        "git tag annotated",
        ["git", "tag", "-a", "v1.0.0", "-m", M],
        ["git", "tag", "-a", "-m", M, "v1.0.0"],
        ["git tag -a", "git tag -a v1.0.0 -m mainframe", "git tag -A v1.0.0"],
    ),
    ("git tag delete", "git tag -d v1.0.0", None, ["git tag -d x", "git tag -D v1.0.0"]),
    (
        "git checkout",
        "git checkout feature/API",
        "git checkout feature/api",
        ["git checkout main", "git checkout -- a.txt", "git checkout .", "git checkout -f A"],
    ),
    (
        "git checkout new branch",
        "git checkout -b feature/api",
        None,
        ["git checkout -B feature/api", "git checkout -b release/1", "git checkout -b"],
    ),
    ("git switch", "git switch A", None, ["git switch master", "git switch -f A", "git switch unknown"]),
    ("git switch new branch", "git switch -c A", None, ["git switch -C A", "git switch -c develop"]),
    (
        "git clone",
        ["git", "clone", URL],
        None,
        ["git clone https://evil.example/x.git", "git clone --mirror " + URL, "git clone"],
    ),
    (
        "git clone into",
        ["git", "clone", URL, "app"],
        ["git", "clone", URL, "./app"],
        [f"git clone {URL} .git", f"git clone {URL} ../x", f"git clone {URL} a b", f"git clone {URL} x.js"],
    ),
    (
        "git push",
        "git push origin feature/api",
        None,
        ["git push origin main", "git push --force origin A", "git push origin A:main", "git push origin"],
    ),
    (
        "git push set-upstream",
        "git push -u origin A",
        None,
        ["git push -U origin A", "git push -u origin trunk", "git push -u=x origin A"],
    ),
    (
        "git push tags",
        "git push --tags origin",
        None,
        ["git push --tags x", "git push --tags origin main", "git push --Tags origin"],
    ),
    (
        "git pull",
        "git pull --rebase origin A",
        None,
        ["git pull origin main", "git pull --rebase=x origin A", "git pull --force origin A"],
    ),
    (
        "git merge",
        ["git", "merge", "--no-ff", "-m", M, "A"],
        None,
        ["git merge main", "git merge --strategy=ours A", ["git", "merge", "-m", "hello world", "A"]],
    ),
    ("git merge abort", "git merge --abort", None, ["git merge --abort A", "git merge --continue"]),
    ("dotnet version", "dotnet --version", None, ["dotnet --Version", "dotnet --version x"]),
    ("dotnet info", "dotnet --info", None, ["dotnet --info x", "dotnet info"]),
    ("dotnet sdks", "dotnet --list-sdks", None, ["dotnet --list-sdks x", "dotnet --list"]),
    ("dotnet runtimes", "dotnet --list-runtimes", None, ["dotnet --list-runtimes x", "dotnet --list-Runtimes"]),
    ("dotnet tool list", "dotnet tool list -g", None, ["dotnet tool list -G", "dotnet tool install x"]),
    ("dotnet sln list", "dotnet sln list", None, ["dotnet sln add x", "dotnet sln list x"]),
    ("dotnet list reference", "dotnet list reference", None, ["dotnet list reference x", "dotnet list"]),
    (
        "dotnet list package",
        "dotnet list package --outdated --format JSON",
        "dotnet list package --outdated --format=json",
        ["dotnet list package --format xml", "dotnet list package --source x"],
    ),
    (
        "dotnet nuget list source",
        "dotnet nuget list source --format=Short",
        None,
        ["dotnet nuget list source --format=long", "dotnet nuget add source x"],
    ),
    ("dotnet workload list", "dotnet workload list", None, ["dotnet workload install x", "dotnet workload list x"]),
    ("dotnet sdk check", "dotnet sdk check", None, ["dotnet sdk install", "dotnet sdk check x"]),
    (
        "dotnet build",
        "dotnet build -c release -o out -v minimal --no-restore",
        "dotnet build -c Release -o ./out -v minimal --no-restore",
        [
            "dotnet build -o .git",
            "dotnet build -o ../out",
            "dotnet build -c Fast",
            "dotnet build x.csproj",
            "dotnet build -p:X=1",
            "dotnet build -C Debug",
        ],
    ),
    (
        "dotnet publish",
        "dotnet publish --output out --configuration=Debug",
        "dotnet publish --output=./out --configuration=Debug",
        ["dotnet publish -o /tmp/x", "dotnet publish --self-contained", "dotnet publish -o"],
    ),
    (
        "dotnet test",
        "dotnet test --no-build --verbosity quiet",
        "dotnet test --no-build --verbosity=quiet",
        ["dotnet test --logger x", "dotnet test -o out"],
    ),
    ("dotnet clean", "dotnet clean -c Debug", None, ["dotnet clean x", "dotnet clean -o out"]),
    (
        "dotnet restore",
        "dotnet restore --no-cache -v normal",
        None,
        ["dotnet restore --source x", "dotnet restore -v loud"],
    ),
    ("dotnet format", "dotnet format --verify-no-changes", None, ["dotnet format x", "dotnet format --include x"]),
    (
        "dotnet new",
        "dotnet new console -n shop.api -o src/api",
        "dotnet new console -n Shop.Api -o ./src/api",
        [
            "dotnet new console -n Other",
            "dotnet new evil",
            "dotnet new console -o .git/x",
            "dotnet new console -n ShopEvil",
        ],
    ),
    (
        "dotnet ef migrations add",
        "dotnet ef migrations add AddUsers",
        None,
        [
            "dotnet ef migrations add DropAll",
            ["dotnet", "ef", "migrations", "add", "V1 V2"],
            "dotnet ef migrations add",
        ],
    ),
    (
        "dotnet ef migrations list",
        "dotnet ef migrations list",
        None,
        ["dotnet ef migrations list x", "dotnet ef migrations remove"],
    ),
    (
        "dotnet ef migrations script",
        "dotnet ef migrations script --idempotent -o a.sql",
        "dotnet ef migrations script --idempotent -o ./a.sql",
        ["dotnet ef migrations script -o a.js", "dotnet ef migrations script x"],
    ),
    (
        "dotnet ef dbcontext info",
        "dotnet ef dbcontext info",
        None,
        ["dotnet ef dbcontext info x", "dotnet ef database drop"],
    ),
    (
        "dotnet ef dbcontext list",
        "dotnet ef dbcontext list",
        None,
        ["dotnet ef dbcontext list x", "dotnet ef dbcontext scaffold"],
    ),
    ("node version", "node --version", None, ["node -v", "node x.js", "node -e 1"]),
    ("npm version", "npm --version", None, ["npm version", "npm install"]),
    (
        "npm ls",
        "npm ls --depth 0 --json",
        "npm ls --depth=0 --json",
        ["npm ls --depth 11", "npm ls x", "npm ls --depth=-1"],
    ),
    ("npm outdated", "npm outdated --json", None, ["npm outdated x", "npm outdated --all"]),
    ("npm audit", "npm audit --omit=dev --json", None, ["npm audit fix", "npm audit --omit=prod"]),
    ("npm cache verify", "npm cache verify", None, ["npm cache clean", "npm cache verify x"]),
    ("npm doctor", "npm doctor", None, ["npm doctor x", "npm Doctor"]),
    ("npm fund", "npm fund", None, ["npm fund x", "npm fund --browser=x"]),
    ("npm prefix", "npm prefix", None, ["npm prefix -g", "npm prefix x"]),
    ("cargo version", "cargo --version", None, ["cargo build", "cargo --version x"]),
    (
        "tar list",
        "tar -tf a.tar",
        "tar -tf ./a.tar",
        ["tar -tf ../a.tar", "tar -xf a.tar", "tar -tF a.tar", "tar -tf a.tar --to-command=x"],
    ),
    ("tar list verbose", "tar -tvf host:a.tar", "tar -tvf ./host:a.tar", ["tar -tvf", "tar -xvf a.tar"]),
    (
        "tar create",
        "tar -cf out.tar src a.txt",
        "tar -cf ./out.tar ./src ./a.txt",
        [
            "tar -cf .git/x src",
            "tar -Cf out.tar src",
            "tar -cf out.tar",
            "tar -cf a.js src",
            "tar -cf out.tar --checkpoint=1",
        ],
    ),
    (
        "tar create gzip",
        "tar -czf out.tgz src",
        "tar -czf ./out.tgz ./src",
        ["tar -czf Makefile src", "tar -czf /tmp/x src", "tar -czf out.tgz ../src"],
    ),
    ("gzip", "gzip a.txt", "gzip ./a.txt", ["gzip .git/config", "gzip -k a.txt", "gzip package.json", "gzip a b"]),
    (
        "gunzip",
        "gunzip a.txt.gz",
        "gunzip ./a.txt.gz",
        [
            "gunzip a.js.gz",
            "gunzip a.js",
            "gunzip Makefile.gz",
            "gunzip a.Z",
            "gunzip -f a.gz",
            "gunzip sub/.git/x.gz",
            "gunzip d/.gz",
        ],
    ),
    (
        "zip",
        "zip out.zip a b",
        "zip ./out.zip ./a ./b",
        ["zip out.zip", "zip .git/x.zip a", "zip -m out.zip a", "zip a.exe a"],
    ),
    ("unzip list", "unzip -l a.zip", "unzip -l ./a.zip", ["unzip a.zip", "unzip -L a.zip", "unzip -l a.zip -d x"]),
    ("cat", "cat a.txt", "cat ./a.txt", ["cat", "cat /etc/passwd", "cat a b", "cat -n a", "cat mk8.shell.env"]),
    (
        "head",
        "head -n 1000 a",
        "head -n 1000 ./a",
        ["head -n 1001 a", "head -n 0 a", "head a", "head -N 5 a", "head -n five a"],
    ),
    ("tail", "tail -n 007 a", "tail -n 7 ./a", ["tail -f a", "tail -n 10 -f a", "tail -n 10"]),
    ("wc lines", "wc -l a", "wc -l ./a", ["wc -L a", "wc a", "wc -l"]),
    ("wc words", "wc -w a", "wc -w ./a", ["wc -W a", "wc -w a b"]),
    ("wc bytes", "wc -c a", "wc -c ./a", ["wc -C a", "wc -c --files0-from=x"]),
    ("sort", "sort a", "sort ./a", ["sort -o b a", "sort --compress-program=x a", "sort"]),
    ("uniq", "uniq a", "uniq ./a", ["uniq a b", "uniq -c a"]),
    ("diff", "diff a b", "diff ./a ./b", ["diff a", "diff a b c", "diff --to-file=x a b"]),
    ("sha256sum", "sha256sum a", "sha256sum ./a", ["sha256sum -c a", "sha256sum"]),
    ("md5sum", "md5sum a", "md5sum ./a", ["md5sum -c a", "md5sum ../a"]),
    ("base64 encode", "base64 a", "base64 ./a", ["base64 -w 0 a", "base64 a b"]),
    ("base64 decode", "base64 -d a", "base64 -d ./a", ["base64 -D a", "base64 -d"]),
    *(
        (
            f"{name} version",
            f"{name} --version",
            None,
            [f"{name} -c 1", f"{name} --version x", f"{name} --Version", name],
        )
        for name in (
            "python3",
            "ruby",
            "perl",
            "php",
            "java",
            "javac",
            "rustc",
            "swift",
            "cmake",
            "gcc",
            "g++",
            "clang",
            "docker",
            "deno",
            "bun",
            "terraform",
        )
    ),
    ("go version", "go version", None, ["go build", "go --version"]),
    ("kubectl version", "kubectl version --client", None, ["kubectl version", "kubectl get pods"]),
    *(
        (
            f"openssl x509 {name}",
            f"openssl x509 -in -noout a.pem -{name}",
            f"openssl x509 -in ./a.pem -noout -{name}",
            [
                f"openssl x509 -in a.pem -{name}",
                "openssl x509 -in a.pem -noout",
                f"openssl x509 -in a.pem -noout -{name} -out b",
                "openssl enc -in a",
            ],
        )
        for name in ("text", "enddate", "subject", "issuer", "serial", "fingerprint")
    ),
    ("which", "which git", None, ["which bash", "which -a git", "which git npm"]),
    ("where", "where NODE", "where node", ["where sh", "where"]),
]


def test_every_template_has_its_row():
    """128 templates, as the contract counts them, and a row for each."""
    assert len(TEMPLATES) == 128
    assert [row[0] for row in ROWS] == [template.description for template in TEMPLATES]
    assert {name: len(found) for name, found in BY_BINARY.items() if len(found) > 4} == {
        "git": 48,
        "dotnet": 23,
        "npm": 8,
        "openssl": 6,
    }


@pytest.mark.parametrize(("name", "command", "given", "refused"), ROWS, ids=[row[0] for row in ROWS])
def test_what_a_template_takes(name, command, given, refused):
    """What it is for is taken, in the words that the program gets, and what is near it is not."""
    given = command if given is None else given
    assert checked(command) == (given.split() if isinstance(given, str) else given)
    assert len(refused) >= 1
    for wrong in refused:
        with pytest.raises(Mk8Error):
            checked(wrong)


def test_openssl_s_fingerprint_by_sha256():
    """The one flag of its own that a certificate's template has."""
    assert checked("openssl x509 -in a.pem -noout -fingerprint -sha256")[-1] == "-sha256"


# The programs.


def test_88_programs_are_blocked():
    """The contract counts them."""
    assert len(BLOCKED) == 88


@pytest.mark.parametrize("name", sorted(BLOCKED))
def test_blocked_programs_are_never_run(name):
    """By name, in any case, with a path or as .exe; but for a version, where the contract says so."""
    for binary in (name, name.upper(), f"/bin/{name}", f"{name}.exe", f"C:\\x\\{name}"):
        for arguments in ([], ["x"], ["-c", "x"]):
            with pytest.raises(CompileError, match="is never run"):
                checked([binary, *arguments])
    if name in VERSION_ONLY:
        assert checked([name, "--version"]) == [name, "--version"]
        with pytest.raises(CompileError, match="is never run"):
            checked([name, "--version", "x"])
    else:
        with pytest.raises(CompileError, match="is never run"):
            checked([name, "--version"])


@pytest.mark.parametrize(
    "binary", ["/usr/bin/git", "./git", "x/git", "/workspace/bin/git", "bin\\git", "..\\git", " git", "git "]
)
def test_9_12_only_bare_names_are_run(binary):
    """Section 9, item 12: a file of the workspace named git is not git."""
    with pytest.raises(CompileError, match="no bare name"):
        checked([binary, "status"])


@pytest.mark.parametrize("binary", ["GIT", "Git", "rustup", "ls", "", "rm"])
def test_what_has_no_template_is_not_run(binary):
    """The error lists what has."""
    with pytest.raises(CompileError, match=r"no template for .*git, dotnet, node"):
        checked([binary, "status"])


@pytest.mark.parametrize(
    "command",
    [
        "git checkout -B A",
        "git switch -C A",
        "tar -Cf out.tar src",
        "git COMMIT -m Fix",
        "git status --SHORT",
        "unzip -L a.zip",
    ],
)
def test_9_13_flags_and_fixed_words_are_compared_exactly(command):
    """Section 9, item 13: another letter is another option."""
    with pytest.raises(CompileError):
        checked(command)


# Slots.


@pytest.mark.parametrize(
    "branch", [*PROTECTED_BRANCHES, "Main", "MASTER", "release/1.0", "Release/x", "refs/heads/main", "heads/main"]
)
def test_9_24_protected_branches_stay_so_whatever_the_vocabulary_says(branch):
    """Section 9, item 24: a word list cannot make them available, in any command."""
    rules = Rules(words=words.merged({"BranchNames": [branch, branch.upper(), branch.lower()]}))
    assert is_protected(branch)
    for command in (
        "checkout",
        "checkout -b",
        "switch",
        "switch -c",
        "push origin",
        "push -u origin",
        "pull origin",
        "merge",
    ):
        with pytest.raises(CompileError, match="protected branch"):
            checked(["git", *command.split(), branch], rules)


@pytest.mark.parametrize("branch", ["A:main", "+main", "HEAD", "HEAD~1", "a..b", "@{u}", "a b", "a/", ".a", "-f"])
def test_a_vocabulary_adds_branches_and_nothing_else(branch):
    """An entry that git would read as something else than one branch is refused."""
    rules = Rules(words=words.merged({"BranchNames": [branch, "team/x"]}))
    assert checked("git checkout team/x", rules) == ["git", "checkout", "team/x"]
    with pytest.raises(CompileError):
        checked(["git", "push", "origin", branch], rules)


def test_the_names_of_a_protected_branch_as_git_tells_them():
    """What is checked out is told by its short name or its full one."""
    assert is_protected("refs/heads/release/2")
    assert not is_protected("feature/main")
    assert not is_protected("mainline")


def test_urls_come_from_the_configuration_alone():
    """Without a list there is no remote and no clone."""
    for command in (f"git clone {URL}", f"git remote add origin {URL}"):
        with pytest.raises(CompileError, match="is empty here"):
            checked(command, Rules())


def test_projects_are_named_after_configured_bases():
    """Base, base and suffix, base.suffix; none configured, none named."""
    for name in ("Shop", "ShopApi", "Shop.Api", "Shop.Application.Core"):
        assert checked(["dotnet", "new", "console", "-n", name])[4] == name
    with pytest.raises(CompileError, match="no project bases"):
        checked("dotnet new console -n Shop", Rules())


def test_a_message_has_at_most_12_words():
    """The limit itself is taken."""
    assert checked(["git", "commit", "-m", " ".join(["Fix"] * 12)])
    with pytest.raises(CompileError, match="13 words"):
        checked(["git", "commit", "-m", " ".join(["Fix"] * 13)])
    for blank in ("", "  "):
        with pytest.raises(CompileError, match="blank"):
            checked(["git", "commit", "-m", blank])


def free(**settings) -> Rules:
    return Rules(blacklist=blacklist.effective(), words=words.merged(), freetext=settings)


def test_free_text_is_off_unless_both_switches_are_on():
    """The master switch wins over a command's own, and a command's own over the master."""
    text = ["git", "commit", "-m", "Make the mainframe hum"]
    on = {"git commit": {"enabled": True}}
    for rules in (
        free(),
        free(enabled=False, perVerb=on),
        free(enabled=True, perVerb={"Git Commit": {"enabled": False}}),
    ):
        with pytest.raises(CompileError, match="not in the word list"):
            checked(text, rules)
    for rules in (free(enabled=True), free(enabled=True, perVerb=on)):
        assert checked(text, rules) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "blank"),
        ("x" * 201, "200 is the most"),
        ("two\nlines", "control character"),
        ("tab\there", "control character"),
        ("set API_KEY=1", "secret"),
        ("authorization: me", "secret"),
        ("my Password: x", "secret"),
    ],
)
def test_free_text_has_its_limits(text, why):
    """Blank, long, in lines, or with what looks like a secret: refused."""
    with pytest.raises(CompileError, match=why):
        checked(["git", "commit", "-m", text], free(enabled=True))


def test_the_shortest_limit_of_a_free_text_holds():
    """Slot, command and configuration each have one."""
    for rules in (
        free(enabled=True, maxLength=10),
        free(enabled=True, maxLength=500, perVerb={"git commit": {"maxLength": 10}}),
    ):
        assert checked(["git", "commit", "-m", "x" * 10], rules)
        with pytest.raises(CompileError, match="10 is the most"):
            checked(["git", "commit", "-m", "x" * 11], rules)
    with pytest.raises(CompileError, match="128 is the most"):
        checked(["git", "tag", "x" * 129], free(enabled=True))


@pytest.mark.parametrize(
    "tag",
    ["a..b", "a@{b", "a//b", ".a", "a.", "/a", "a/", "a.lock", "a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b"],
)
def test_free_names_of_tags_are_names_of_tags(tag):
    """What git would refuse, or read as something else."""
    assert checked(["git", "tag", "team/v1.2-x"], free(enabled=True))
    with pytest.raises(CompileError, match="cannot be the name of a tag"):
        checked(["git", "tag", tag], free(enabled=True))


@pytest.mark.parametrize("name", ["1a", "a-b", "a b", "a.b", "ä"])
def test_free_names_of_migrations_are_identifiers(name):
    """They become the name of a class."""
    assert checked(["dotnet", "ef", "migrations", "add", "_Add2"], free(enabled=True))
    with pytest.raises(CompileError, match="not an identifier"):
        checked(["dotnet", "ef", "migrations", "add", name], free(enabled=True))


# Paths.


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("cat ../x", PathViolation),
        ("git add a /etc/x", PathViolation),
        (["cat", ""], InvalidArgument),
        (["cat", "a\0"], InvalidArgument),
        ("tar -cf .git/x a", CompileError),
    ],
)
def test_a_wrong_path_is_told_by_its_category(command, error):
    """Whatever the other templates of the program say."""
    with pytest.raises(error) as caught:
        checked(command)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "command",
    [
        *("gunzip x.js.gz", "gunzip .git/x.gz", "gunzip lib.so.1.gz", "gunzip Makefile.gz", "gunzip a.tgz/../b.gz"),
        *("tar -cf .git/x a", "tar -czf x.dll a", "zip package.json a", "gzip .git/HEAD", "gzip setup.py"),
        *("dotnet build -o .git", "dotnet publish --output=.git/x", "dotnet ef migrations script -o x.js"),
        f"git clone {URL} .git",
        f"git clone {URL} sub/.git/x",
    ],
)
def test_9_18_what_a_program_writes_is_under_the_rules_for_writing(command):
    """Section 9, item 18: no way around write protection through tar, gunzip, zip, dotnet or clone."""
    with pytest.raises(Mk8Error):
        checked(command)


def test_gunzip_s_result_is_told():
    """A .tgz becomes a .tar; the error names the file that would be written."""
    assert checked("gunzip a.tgz") == ["gunzip", "./a.tgz"]
    with pytest.raises(CompileError, match=r"would write .*a\.js"):
        checked("gunzip a.js.gz")


def test_links_are_followed_where_the_files_are(tmp_path):
    """A link to the outside is no path of the sandbox, for a program either."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    root = str(tmp_path / "root")
    with pytest.raises(PathViolation, match="through a link"):
        check_command(["cat", "out/x"], RULES, root, links=True, relative=True)


def test_in_another_folder_paths_are_given_in_full():
    """Relative to the root, they would be another file for the program."""
    assert checked("cat a.txt", relative=False) == ["cat", "/workspace/a.txt"]
    assert checked("git add /workspace .", relative=True) == ["git", "add", ".", "."]


# What only the run knows, and what is said.


def test_a_value_that_only_the_run_knows_fills_a_slot():
    """It stays open at compile time; it is neither a flag nor a fixed word."""
    assert checked(["cat", None]) == ["cat", None]
    assert checked(["git", "commit", "-m", None]) == ["git", "commit", "-m", None]
    assert checked([None, "status"]) == [None, "status"]
    for command in (["git", None], ["git", "status", None]):
        with pytest.raises(CompileError):
            checked(command)


def test_the_error_tells_why_each_template_refused():
    """Those that begin alike by their reason, the others by their beginning."""
    with pytest.raises(CompileError) as caught:
        checked("git push origin main")
    text = str(caught.value)
    assert text.startswith("mk8.shell compile error [ProcRun]: no template takes 'git push origin main'.")
    for line in (
        "- git push (git push <RemoteNames> <BranchNames>): 'main' is a protected branch",
        "- git push set-upstream (",
        "git push --tags;",
    ):
        assert line in text
    assert text.count("git status") == 1
