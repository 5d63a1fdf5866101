"""``python -m isometry`` is the ``isometry`` command."""

from isometry.cli.app import main

main()
