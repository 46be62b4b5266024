"""``python -m metakel`` is the ``metakel`` command."""

from metakel.cli import main

main()
