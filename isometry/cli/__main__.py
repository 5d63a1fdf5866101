"""``python -m isometry.cli`` is the ``isometry`` command."""

from isometry.cli.app import main

main()
