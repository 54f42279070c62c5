"""
Transcription: the command that turns an audio file of the workspace into text, and what its outcome is called.

Pure. It runs in an image that has Debian's pocketsphinx, pocketsphinx-en-us, sox and libsox-fmt-mp3. Debian 12's
pocketsphinx (0.8+5prealpha) has `pocketsphinx_continuous` and no `pocketsphinx`; it takes 16 kHz, 16 bits, one channel,
and leaves with 1 at anything else. So sox converts and hands over raw samples through a pipe: what is not named *.wav
is read as that. About a third of the audio's length on one core.

A sandbox has no microphone: an audio device is a file that the host program records into the workspace.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Final

from provider.dialects.contract import Rejected
from provider.dialects.mk8.call import Result
from provider.dialects.mk8.status import Status
from provider.model import Outcome, State

ROOT: Final = "/workspace"
TIMEOUT: Final = 300.0
NOTHING_HEARD: Final = "(no speech recognised)"

FORMATS: Final = {
    "wav": "wav", "flac": "flac", "ogg": "ogg", "oga": "ogg", "mp3": "mp3", "aif": "aiff", "aiff": "aiff", "au": "au"
}  # fmt: skip
"""File endings to sox's names. Told, not guessed: by its own guess sox would follow a playlist to other files."""

_COMMAND: Final = (
    # -D: without dither, so that the same file gives the same samples; -V1: nothing but failures on stderr.
    'set -o pipefail; sox -V1 -D -t "$2" "$1" -t raw -r 16000 -e signed-integer -b 16 -c 1 - | '
    'pocketsphinx_continuous -infile /dev/stdin -hmm "$3" -lm "$4" -dict "$5" -logfn /dev/null'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A registered model: acoustic model, language model and dictionary, as paths in the image."""

    id: str
    """A GUID in lower case."""
    language: str
    """BCP-47, such as en-US."""
    acoustic: str
    words: str
    dictionary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDevice:
    """A resource that can be listened to."""

    id: str
    file: str
    """Where the host program records it, below the workspace."""


_ENGLISH_FOLDER: Final = "/usr/share/pocketsphinx/model/en-us"
ENGLISH: Final = Model(
    id="6d6b3800-0000-4000-8000-000000000001",
    language="en-US",
    acoustic=f"{_ENGLISH_FOLDER}/en-us",
    words=f"{_ENGLISH_FOLDER}/en-us.lm.bin",
    dictionary=f"{_ENGLISH_FOLDER}/cmudict-en-us.dict",
)
"""The embedded default, of the package pocketsphinx-en-us."""


def argv_for(file: str, model: Model = ENGLISH, language: str | None = None) -> tuple[str, ...]:
    """Raises Rejected: the file cannot be one of the workspace's, or the model does not know the language."""
    if language and _primary(language) != _primary(model.language):
        message = f"model {model.id} knows {model.language}, not {language}; leave language out, or name another model"
        raise Rejected(message)
    path = _path(file)
    ending = posixpath.splitext(path)[1].removeprefix(".").lower()
    if ending not in FORMATS:
        message = f"{file!r} must be audio, by its ending one of {', '.join(FORMATS)}"
        raise Rejected(message)
    # The path is an argument, never part of the text; absolute, it is none of sox's special names (`-`, `|command`).
    return ("bash", "-c", _COMMAND, "transcribe", path, FORMATS[ending], model.acoustic, model.words, model.dictionary)


def answer(call_id: str, outcome: Outcome) -> Result:
    """One line an utterance."""
    if outcome.status is State.COMPLETED:
        lines = (line.strip() for line in outcome.stdout.decode("utf-8", "replace").splitlines())
        return Result(id=call_id, status=Status.COMPLETED, result="\n".join(filter(None, lines)) or NOTHING_HEARD)
    how = f"ended with exit code {outcome.exit_code}" if outcome.exit_code else "was ended before its end"
    if outcome.timed_out:
        how = "timed out"
    elif outcome.over_quota:
        how = f"was ended: {outcome.over_quota}"
    elif outcome.error is not None or outcome.exit_code == _COMMAND_NOT_FOUND:
        how = "is not in this image, which needs bash, pocketsphinx, pocketsphinx-en-us, sox and libsox-fmt-mp3"
    stderr = outcome.stderr[-_STDERR_BYTES:].decode("utf-8", "replace").strip()
    error = f"transcription {how}" + (f": {stderr}" if stderr else "")
    return Result(id=call_id, status=Status.FAILED, error=error)


_COMMAND_NOT_FOUND: Final = 127  # bash
_STDERR_BYTES: Final = 4096


def _path(file: str) -> str:
    path = posixpath.normpath(posixpath.join(ROOT, file))
    if not path.startswith(f"{ROOT}/") or any(ord(letter) < ord(" ") for letter in file):
        message = f"{file!r} must be a file below {ROOT}"
        raise Rejected(message)
    return path


def _primary(language: str) -> str:
    return language.strip().replace("_", "-").split("-", 1)[0].casefold()
