"""
Which variables a call may set: the contract's eight, and those by which a listed program is made to run another.

Exact names in exact case, so LD_PRELOAD_FOO and PYTHONUNBUFFERED pass. PATH is among them: with one of its own a call
would decide which file a name on the allowlist is. The list is not
complete, and cannot be; the container is the boundary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provider.errors import CallError
from provider.policy.env import HELIX_LIST, HELPERS, JAVA, SHELL, Family, Table, check_env

_NAMES = (
    *("PATH", "GLIBC_TUNABLES", "GCONV_PATH", "LD_DEBUG_OUTPUT", "LD_PROFILE_OUTPUT", "LD_ORIGIN_PATH"),
    *("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONEXECUTABLE", "PYTHONUSERBASE"),
    *("PERL5LIB", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "LUA_INIT", "PHPRC", "PHP_INI_SCAN_DIR"),
    *("NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "npm_config_*", "NPM_CONFIG_*", "YARN_*", "PNPM_*"),
    *("GEM_HOME", "GEM_PATH", "BUNDLE_*"),
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PAGER"),
    *("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_CONFIG", "GIT_CONFIG_*"),
    *("GIT_DIR", "CC", "CXX", "CARGO_*", "RUSTFLAGS", "CGO_*"),
    *("MAKEFLAGS", "MAKEFILES", "GNUMAKEFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "GOFLAGS"),
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS"),
)
_PATTERN = "|".join(name.replace("*", ".*") for name in _NAMES)
STEERING = Family(
    "it makes a listed program run something else", _NAMES, re.compile(_PATTERN), re.compile(_PATTERN, re.IGNORECASE)
)
DENIED = Table(families=(HELIX_LIST, SHELL, HELPERS, JAVA, STEERING), folds_case=False)
_MOST_SHOWN = 10


def check_environment(env: Mapping[str, str]) -> None:
    """Raises CallError naming what is wrong with these variables: names, number, size, or the denylist."""
    faults = check_env(env, DENIED)
    if not faults:
        return
    texts = [f"{ascii(fault.name[:80])[1:-1]}: {fault.reason}" if fault.name else fault.reason for fault in faults]
    more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    message = f"env is not allowed: {'; '.join(texts[:_MOST_SHOWN])}{more}"
    raise CallError(message)
