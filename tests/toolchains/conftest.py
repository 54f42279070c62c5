"""What lies in `cases` are workspaces; the tests in them are run in sandboxes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the table is a module of `toolchains`

collect_ignore = ["cases"]
