"""The version of the package that is installed."""

from importlib.metadata import version

VERSION = version("dalsegno")
