"""The operator's settings: `dalsegno.env`, overridden by the environment.

    from dalsegno.settings import load_settings

| module | what it knows |
|---|---|
| `keys` | how keys are called, and which are kept by jobs |
| `values` | how values are written, and what they are read as |
| `masks` | secrets out of values, and back in |
| `settings` | a field per key, with its default and its sentence |
| `load` | the settings in force, and where each comes from |
"""

from dalsegno.settings.load import Loaded, load_settings
from dalsegno.settings.settings import KEYS, Settings

__all__ = ["KEYS", "Loaded", "Settings", "load_settings"]
