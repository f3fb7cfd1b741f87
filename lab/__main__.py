"""``python -m lab``: the lab's verbs without the rest of the tool."""

import sys

from lab.cli import main

sys.exit(main())
