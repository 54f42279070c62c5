"""
Group F: variables by which a harmless program is made to run something else, or to tell what it should not.

`FAMILIES` are put as text before a command, and as the environment of a call where a contract takes one.
"""

from __future__ import annotations

from typing import Final

from attacks.trick import Trick

FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "F1": (
        "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH",
        "MALLOC_CHECK_", "ld_preload",
    ),
    "F2": (
        "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "IFS", "CDPATH", "GLOBIGNORE", "ZDOTDIR",
        "FPATH",
    ),
    "F3": ("PATH", "HOME", "TMPDIR", "PWD", "path"),
    "F4": (
        "PYTHONSTARTUP", "PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "BROWSER", "PYTHONINSPECT", "PYTHONBREAKPOINT",
        "PYTHONUSERBASE",
    ),
    "F5": (
        "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "npm_config_script_shell", "npm_config_node_options",
        "npm_config_registry", "npm_config_userconfig", "NPM_CONFIG_SCRIPT_SHELL", "YARN_RC_FILENAME", "PNPM_HOME",
    ),
    "F6": ("PERL5OPT", "PERL5LIB", "PERL5DB", "RUBYOPT", "RUBYLIB", "GEM_HOME", "BUNDLE_GEMFILE"),
    "F7": ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "CLASSPATH"),
    "F8": (
        "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER", "GIT_EXTERNAL_DIFF",
        "GIT_PROXY_COMMAND",
        "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM", "GIT_DIR", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
    ),
    "F9": (
        "EDITOR", "VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "BROWSER", "SSH_ASKPASS", "SUDO_ASKPASS",
    ),
    "F10": (
        "RUSTC_WRAPPER", "RUSTFLAGS", "CARGO_HOME", "CC", "CXX", "MAKEFLAGS", "GOFLAGS", "CGO_CFLAGS", "GOPROXY",
    ),
    "F11": ("DOCKER_HOST", "DOCKER_CONFIG", "KUBECONFIG", "SSH_AUTH_SOCK", "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS"),
    "F13": (
        "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
    ),
}  # fmt: skip
_TITLES: Final = {
    "F1": "A variable of the loader is not set silently.",
    "F2": "A variable of the shell is not set silently.",
    "F3": "A variable that the provider sets is not changed silently.",
    "F4": "A variable by which Python runs something else is not set silently.",
    "F5": "A variable by which Node and its tools run something else is not set silently.",
    "F6": "A variable by which Perl or Ruby run something else is not set silently.",
    "F7": "A variable by which Java runs something else is not set silently.",
    "F8": "A variable by which git runs something else is not set silently.",
    "F9": "A variable that names a helper program is not set silently.",
    "F10": "A variable by which a build runs something else is not set silently.",
    "F11": "A variable that leads to a service of somebody's machine is not set silently.",
    "F13": "A variable that says how the network is reached is not set silently.",
}


def _spellings(names: tuple[str, ...]) -> tuple[str, ...]:
    before = tuple(f"{name}=x ls" for name in names)
    return (*before, *(f"env {name}=x ls" for name in names), *(f"export {name}=x; ls" for name in names))


TRICKS: Final = tuple(
    Trick(id=name, title=title, spellings=_spellings(FAMILIES[name])) for name, title in _TITLES.items()
)

HELIX_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "F1": ("LOCPATH", "NLSPATH", "MALLOC_CHECK_", "ld_preload"),
    "F3": ("HOME", "TMPDIR", "PWD", "path"),
    "F4": ("PYTHONWARNINGS",),
    "F5": ("NODE_EXTRA_CA_CERTS",),
    "F10": ("GOPROXY",),
    "F11": FAMILIES["F11"],
    "F13": FAMILIES["F13"],
}
"""
What `workspace_run` lets a call set: its contract has a list of names, in exact case, and lets all others pass. They
are the call's own variables for its own command; nothing of the host is behind them in a sandbox.
"""
