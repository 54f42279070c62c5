"""Which variables of the environment a script may see, and which values nobody shows."""

from __future__ import annotations

from typing import Final

ALLOWED: Final = (
    *("HOME", "USERPROFILE", "USER", "USERNAME", "PATH", "LANG", "LC_ALL", "TZ", "TERM", "PWD"),
    *("HOSTNAME", "SHELL", "EDITOR", "DOTNET_ROOT", "NODE_ENV"),
)
"""In the order in which EnvList has them."""
REDACTED: Final = (
    *("KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "CONN", "PRIVATE", "ENCRYPT", "JWT"),
    *("BEARER", "CERTIFICATE", "APIKEY", "API_KEY"),
)
"""A name with one of these in it is that of a secret: Mk8Env hides its value."""
REFUSED: Final = (*REDACTED, "CONNECTION_STRING", "AUTH")
"""A name with one of these in it is never allowed, whatever the list says."""


def is_allowed(name: str) -> bool:
    upper = name.upper()
    return upper in ALLOWED and not any(word in upper for word in REFUSED)


def is_redacted(name: str) -> bool:
    upper = name.upper()
    return any(word in upper for word in REDACTED)
