"""
Which variables a caller may set for a command.

Every contract has a table; the checks are the same. Every variable that is refused is named with its reason, not only
the first. What the provider sets itself (PATH, HOME, proxies) is not the caller's to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

MAX_COUNT: Final = 256
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_NAME_BYTES: Final = 255


class Family(NamedTuple):
    """Variables of one kind."""

    reason: str
    names: tuple[str, ...]
    """`*` stands for any run of letters, at the beginning and at the end."""
    exact: re.Pattern[str]
    folded: re.Pattern[str]


def _family(reason: str, names: str) -> Family:
    listed = tuple(names.split())
    pattern = "|".join(re.escape(name).replace(r"\*", ".*") for name in listed)
    return Family(reason, listed, re.compile(pattern, re.DOTALL), re.compile(pattern, re.DOTALL | re.IGNORECASE))


LOADER = _family(
    "it loads code into programs",
    "LD_* DYLD_* GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH MALLOC_* HOSTALIASES RESOLV_HOST_CONF",
)
SHELL = _family(
    "it changes what a shell does",
    "BASH_ENV ENV SHELLOPTS BASHOPTS BASH_FUNC_* BASH_COMPAT BASH_XTRACEFD POSIXLY_CORRECT PS4 PROMPT_COMMAND IFS "
    "CDPATH GLOBIGNORE EXECIGNORE FUNCNEST ZDOTDIR FPATH INPUTRC HISTFILE",
)
OURS = _family("the provider sets it", "PATH HOME TMPDIR TMP TEMP PWD OLDPWD SHELL USER LOGNAME")
PYTHON = _family("it changes what Python runs", "PYTHON*")
NODE = _family(
    "it changes what Node runs",
    "NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS NODE_REPL_EXTERNAL_MODULE NODE_TLS_REJECT_UNAUTHORIZED "
    "npm_config_* YARN_* PNPM_* COREPACK_* BUN_* DENO_*",
)
SCRIPTING = _family(
    "it changes what Perl, Ruby, PHP or Lua runs",
    "PERL5OPT PERL5LIB PERL5DB PERLLIB PERLIO* PERL_* RUBYOPT RUBYLIB RUBYSHELL GEM_* BUNDLE_* PHPRC "
    "PHP_INI_SCAN_DIR LUA_INIT* LUA_PATH* LUA_CPATH*",
)
JAVA = _family(
    "it changes what Java runs",
    "JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JAVA_OPTS MAVEN_OPTS MAVEN_ARGS GRADLE_OPTS ANT_OPTS CLASSPATH",
)
GIT = _family("it changes what git runs, or where it looks", "GIT_*")
HELPERS = _family(
    "it names a program that others start",
    "EDITOR VISUAL FCEDIT PAGER MANPAGER MANOPT LESSOPEN LESSCLOSE LESS LESSKEY* BROWSER SSH_ASKPASS SUDO_ASKPASS "
    "SUDO_EDITOR SYSTEMD_PAGER SYSTEMD_EDITOR TAR_OPTIONS RSYNC_RSH CVS_RSH SVN_SSH VIMINIT EXINIT VIM MYVIMRC "
    "RIPGREP_CONFIG_PATH WGETRC CURL_HOME FZF_DEFAULT_COMMAND",
)
BUILD = _family(
    "it changes what a build runs",
    "RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTDOC RUSTFLAGS RUSTUP_* CARGO_* CC CXX LD AR CPP CFLAGS "
    "CXXFLAGS LDFLAGS COMPILER_PATH GCC_EXEC_PREFIX MAKEFLAGS MAKEFILES GNUMAKEFLAGS MFLAGS GOFLAGS CGO_* GOPROXY "
    "GONOSUMDB GONOSUMCHECK GOSUMDB GOINSECURE CMAKE_TOOLCHAIN_FILE PIP_* UV_* POETRY_* TOX_* PYTEST_ADDOPTS "
    "PYTEST_PLUGINS",
)
AGENTS = _family(
    "it leads to a service of somebody's machine",
    "DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT KUBECONFIG SSH_AUTH_SOCK GPG_AGENT_INFO GNUPGHOME DBUS_* DISPLAY "
    "WAYLAND_DISPLAY XAUTHORITY",
)
NETWORK = _family(
    "the provider decides how a command reaches the network",
    "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE "
    "REQUESTS_CA_BUNDLE OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES",
)
SECRETS = _family(
    "its name says that it is a secret",
    "AWS_* GOOGLE_* AZURE_* *TOKEN* *SECRET* *KEY* *PASS* *CREDENTIAL*",
)
HELIX_LIST = _family(
    "it can be used to gain privileges",
    "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH NODE_OPTIONS PYTHONPATH PERL5OPT",
)
CODEX_EXCLUDES = _family("Codex leaves it out by default", "*KEY* *SECRET* *TOKEN*")
MK8_REDACTED = _family(
    "mk8 never shows it",
    "*KEY* *SECRET* *TOKEN* *PASSWORD* *PASSWD* *CREDENTIAL* *CONN* *PRIVATE* *ENCRYPT* *JWT* *BEARER* *CERTIFICATE*",
)

# Everything by which a variable makes a harmless program run something else.
STEERING = (LOADER, SHELL, PYTHON, NODE, SCRIPTING, JAVA, GIT, HELPERS, BUILD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How one contract treats the variables of a call."""

    families: tuple[Family, ...]
    folds_case: bool = True
    """`ld_preload` counts as LD_PRELOAD, and names that differ only in case as the same."""
    duplicates: Literal["refuse", "last wins"] = "refuse"
    max_count: int = MAX_COUNT
    max_value_bytes: int = MAX_VALUE_BYTES
    denied_text: str = "{reason}"
    """What is said of a variable on a list; {name} and {reason} are filled in."""


PROVIDER: Final = Table(families=(*STEERING, OURS, AGENTS, NETWORK))
"""The strictest: for calls of a model, under every contract that has no table of its own."""
HELIX: Final = Table(
    families=(HELIX_LIST,),
    folds_case=False,
    denied_text="environment variable {name} is not allowed: {reason}",
)
"""Exact names in exact case, so LD_PRELOAD_FOO passes."""
CODEX: Final = Table(families=(CODEX_EXCLUDES,))
MK8: Final = Table(families=(MK8_REDACTED,))
WITH_SECRETS: Final = Table(families=(*PROVIDER.families, SECRETS))
"""For variables that would be copied from the machine instead of given with the call."""

TABLES: Final[Mapping[str, Table]] = {
    "provider": PROVIDER,
    "workspace_run": HELIX,
    "codex": CODEX,
    "mk8": MK8,
    "inherited": WITH_SECRETS,
}


class EnvFault(NamedTuple):
    name: str
    """As it was given; empty when the fault is of all of them."""
    reason: str


def check_env(env: Mapping[str, str] | Iterable[tuple[str, str]], table: Table = PROVIDER) -> tuple[EnvFault, ...]:
    """Return everything that is wrong with these variables; nothing when they may be set."""
    pairs = list(env.items() if isinstance(env, Mapping) else env)
    faults = []
    if len(pairs) > table.max_count:
        faults.append(EnvFault("", f"{len(pairs)} variables; at most {table.max_count} can be set"))
        pairs = pairs[: table.max_count]
    seen: set[str] = set()
    for name, value in pairs:
        folded = name.upper() if table.folds_case else name
        reason = _malformed(name) or _oversized(value, table) or denied(name, table)
        if not reason and folded in seen and table.duplicates == "refuse":
            reason = "it is given twice"
        seen.add(folded)
        if reason:
            faults.append(EnvFault(name, reason))
    return tuple(faults)


def denied(name: str, table: Table = PROVIDER) -> str:
    """Return why a name is on one of the table's lists; empty when it is on none."""
    for family in table.families:
        if (family.folded if table.folds_case else family.exact).fullmatch(name):
            return table.denied_text.format(name=name, reason=family.reason)
    return ""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _malformed(name: str) -> str:
    """A name that programs read alike: `=`, NUL, a newline or a blank in it are ways to be read as something else."""
    if len(name) > MAX_NAME_BYTES:
        return f"its name is longer than {MAX_NAME_BYTES} characters"
    if name.startswith("BASH_FUNC_"):
        return "bash would take it for a function"
    if not _NAME.fullmatch(name):
        return "its name is not made of letters, digits and _" if name else "its name is empty"
    return ""


def _oversized(value: str, table: Table) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "its value is not valid UTF-8"
    if "\0" in value:
        return "its value has a NUL in it"
    if size > table.max_value_bytes:
        return f"its value has {size} bytes; at most {table.max_value_bytes} can be set"
    return ""
