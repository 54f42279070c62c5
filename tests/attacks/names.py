"""Names that several files of the suite share."""

import os

IMAGES = {"minimal": "sandbox-provider/minimal", "default": "sandbox-provider/default"}
OWNER = 1000 if os.geteuid() == 0 else os.geteuid()
"""Who owns a workspace, as whom commands run there."""
