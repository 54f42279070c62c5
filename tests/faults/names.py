"""How long the suite may take."""

import os

LONG = os.environ.get("FAULTS") == "long"
SOAK = int(os.environ.get("SOAK", "60"))
HOURS = 4 * 3600
