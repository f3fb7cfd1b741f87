"""``python -m fabric_plan``: the same as the ``fabric-plan`` command."""

from fabric_plan.cli.main import main

raise SystemExit(main())
