"""Names that have broken other people's uploads."""

from __future__ import annotations

HOSTILE = [
    "周杰倫/葉惠美/晴天.flac",
    "Sigur Rós/Ágætis byrjun/Svefn-g-englar (é vs e\u0301).mp3",
    "a + b & c = d % 100%25 ? # ; , @ $ ! ' ( ) *.mp3",
    "emoji 😀🎵/👩‍👩‍👧.ogg",
    '"quotes" and <tags> and |pipes|.mp3',
    " leading and trailing .mp3 ",
    "dots.../...hidden/..x.mp3",
    "CON/NUL.mp3",
    "x" * 240 + ".mp3",
    "長" * 80 + "/" + "い" * 80 + ".flac",
    "~tilde/[brackets]/{braces}/`tick`.mp3",
]
REFUSED = [
    "",
    "/x",
    "x/",
    "a//b",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/./b",
    "a\nb",
    "a\0b",
    "a\\b",
    "\ud800",
    "y" * 1025,
]
REFUSED += [".dalsegno-probe-1", "a/.dalsegno-x.part"]
