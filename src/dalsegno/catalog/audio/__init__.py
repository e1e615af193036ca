"""Is it audio, of what kind, and all there? By content only: names and Content-Types lie."""

from dalsegno.catalog.audio.examine import examine
from dalsegno.catalog.audio.model import Audio, NotAudio

__all__ = ["Audio", "NotAudio", "examine"]
