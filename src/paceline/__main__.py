"""`python -m paceline …` (also what `torchrun -m paceline` runs)."""

import sys

from paceline.cli import main

sys.exit(main())
