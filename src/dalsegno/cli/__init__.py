"""The command line. One file per group of commands; each imports what it needs only when it runs."""

from dalsegno.cli.app import main

__all__ = ["main"]
