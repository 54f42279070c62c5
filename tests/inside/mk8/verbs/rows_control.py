"""Rows of the verbs about the script itself."""

from __future__ import annotations

from rows import no, ok

ANSWERS = {
    "answers": {
        "Mk8Blacklist": "a\nb",
        "Mk8Vocab BranchNames": "x\ny",
        "Mk8Vocab TagNames": "z",
        "Mk8VocabList": "BranchNames (2 words)",
        "Mk8FreeText": "Global Enabled: False",
        "Mk8FreeText git commit": "Command: git commit",
        "Mk8Env": "A=1",
        "Mk8Info": "SandboxId: x",
        "Mk8Templates": "git status",
        "Mk8Verbs": "Assert",
        "Mk8Skills": "short",
        "Mk8Docs": "long",
    }
}
SIMPLE = ("Blacklist", "VocabList", "FreeText", "Env", "Info", "Templates", "Verbs", "Skills", "Docs")

ROWS = (
    *(ok(f"Mk8{name}", gives=ANSWERS["answers"][f"Mk8{name}"], world=ANSWERS) for name in SIMPLE),
    *(no(f"Mk8{name}", fails="StepFailure", says=f"Mk8{name} has no answer") for name in SIMPLE),
    *(no(f"Mk8{name}", "x", "y", says="expected 0") for name in SIMPLE),
    ok("Mk8Vocab", "branchnames", gives="x\ny", world=ANSWERS),
    ok("Mk8Vocab", "Nope", gives="Word list 'Nope' not found. Available: BranchNames, TagNames", world=ANSWERS),
    no("Mk8Vocab", says="expected 1"),
    ok("Mk8FreeText", "git commit", gives="Command: git commit", world=ANSWERS),
    no("Mk8FreeText", "git x", fails="StepFailure", says="it knows git commit", world=ANSWERS),
    no("ForEach", says="expanded when a script is compiled"),
    no("ForEach", "x", says="expected 0"),
    no("If", says="expanded when a script is compiled"),
    no("If", "x", says="expected 0"),
    no("Include", "fragment", says="expanded when a script is compiled"),
    no("Include", says="expected 1"),
    no("FileWriteMany", "a", "b", says="expanded when a script is compiled"),
    no("FileWriteMany", "a", "b", "c", says="even number"),
    no("FileWriteMany", "a.js", "b", says="write-protected"),
    no("FileWriteMany", *("a" * 130), says="128 arguments"),
    no("FileCopyMany", "a", "b", says="expanded when a script is compiled"),
    no("FileCopyMany", "a", "b", "c", says="even number"),
    no("FileCopyMany", "a", "b.js", says="write-protected"),
    no("FileCopyMany", *("a" * 130), says="128 arguments"),
    no("FileDeleteMany", "a", says="expanded when a script is compiled"),
    no("FileDeleteMany", says="64 arguments"),
    no("FileDeleteMany", *("a" * 65), says="64 arguments"),
    no("FileDeleteMany", ".git/x", says="write-protected"),
)
