"""The demo catalog: songs, playlists and pools that follow from a seed and a number.

Nothing is kept. Any song or playlist is computed when asked for, so a catalog of 200,000 songs costs as much memory as
one of 120.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dalsegno.sources.demo_audio import REST, Melody


class Fault(StrEnum):
    """What is the matter with a song. Its value is what the catalog's documentation calls it."""

    SLOW = "slow"
    """The audio trickles: 40 KB/s, yet never longer than 8 seconds."""
    SLOW_LINK = "slow-link"
    """Resolving takes 2 to 4 seconds."""
    FLAKY = "flaky"
    """The first request for the audio is cut in the middle."""
    BUSY = "busy"
    """The first request for the audio is answered 503."""
    RATE_LIMITED = "rate-limited"
    """All songs of this kind together resolve twice in 2 seconds; more is answered 429 with Retry-After."""
    ONE_USE = "one-use"
    """A link is good for one request, and the first is cut in the middle: going on takes a new link."""
    GONE = "gone"
    """404, for good."""
    FORBIDDEN = "forbidden"
    """There is a link, but the audio is answered 403, for good."""
    HTML = "html"
    """A web page, with status 200, in place of audio."""
    TRUNCATED = "truncated"
    """No request ever gets past the middle of the audio."""
    CORRUPT = "corrupt"
    """It decodes, but the MD5 inside the FLAC is that of something else."""
    LYING_LENGTH = "lying-length"
    """Half the audio, and a Content-Length that calls it all. Only on request."""
    REDIRECT_LOOP = "redirect-loop"
    """The audio redirects to itself. Only on request."""


FAULTS: Mapping[int, Fault] = {
    3: Fault.SLOW,
    46: Fault.SLOW,
    8: Fault.SLOW_LINK,
    27: Fault.SLOW_LINK,
    66: Fault.SLOW_LINK,
    12: Fault.FLAKY,
    51: Fault.FLAKY,
    98: Fault.FLAKY,
    17: Fault.BUSY,
    72: Fault.BUSY,
    21: Fault.RATE_LIMITED,
    22: Fault.RATE_LIMITED,
    23: Fault.RATE_LIMITED,
    25: Fault.RATE_LIMITED,
    33: Fault.ONE_USE,
    87: Fault.ONE_USE,
    6: Fault.GONE,
    36: Fault.FORBIDDEN,
    58: Fault.HTML,
    77: Fault.TRUNCATED,
    101: Fault.CORRUPT,
    31: Fault.GONE,
    92: Fault.HTML,
}
"""By number of the song. The last two have a mirror, so that five songs fail for good and two are found elsewhere."""
MIRRORED = frozenset({31, 92})

LONG = "The Lighthouse Keeps a Ledger of Every Wave " * 8
ODD: Mapping[int, tuple[str, str]] = {
    2: ("Ночной трамвай", "Северный Маяк"),
    9: ("../../etc/passwd", "The Relative Paths"),
    14: ("CON", "The Reserved Names"),
    19: ("Fading Out...", "Trailing Dots. . ."),
    24: ('He said "Largo" / she\'d <Presto>: *who?* |', "Quotes & Slashes\\"),
    29: ("First line\nSecond line\tand a tab", "Line Break Quartet"),
    34: ("Left \u202eot thgir\u202c and back", "RTL Override"),
    39: ("🎷🌧️ Sax in the Rain 👩‍🚀", "Émoji Orchestra 🎻"),
    44: (LONG[:300], "The Long Titles"),
    49: ("长" * 300, "很长的乐队"),
    53: ("فانوس البحر", "مقهى القمر"),
    54: ("מגדלור בערפל", "גשר הרוח"),
    59: (" leading and trailing ", " Blank Spaces "),
    64: ("NUL.flac", "COM1"),
    69: ("~", "-rf"),
    74: ("Cafe\u0301 de\u0301compose\u0301", "Combining Accents"),
    79: ("%2e%2e%2fescape", "Percent Signs"),
    84: ("Дождь над гаванью", "Гармонь и Туман"),
    89: ("1/2", "½ & ⅔"),
    94: ("한밤의 등대", "바람의 종"),
}
"""Titles and bands that are hard on file names, by number of the song."""

_WORDS = {
    "en": (
        ("Copper", "Silent", "Paper", "Northern", "Velvet", "Electric", "Hollow", "Amber", "Distant", "Slow", "Tidal"),
        ("Kettle", "Harbour", "Lantern", "Cello", "Thunder", "Bridge", "Orchard", "Clock", "Tramway", "Meadow", "Fog"),
    ),
    "accents": (
        ("Château", "Café", "Étoile", "Señal", "Über", "Måne", "Crème", "Façade", "Niño", "Führung", "Smörgås"),
        ("d’Été", "Météore", "Øresund", "Brûlée", "Mañana", "Größe", "Ångström", "São Luís", "Łódź", "Kraków", "Český"),
    ),
    "zh": (
        ("夜", "雨后的", "远方", "玻璃", "银色", "山间", "慢", "春天的", "纸", "无声", "海上"),
        ("钟楼", "火车站", "灯塔", "大提琴", "茶馆", "风筝", "月台", "雷雨", "石桥", "萤火", "列车"),
    ),
    "ja": (
        ("夜の", "雨の", "青い", "遠い", "静かな", "ガラスの", "銀色の", "ゆるい", "春の", "紙の", "海の"),
        ("灯台", "列車", "ピアノ", "風鈴", "カメラ", "桜", "坂道", "雷", "喫茶店", "みずうみ", "スピーカー"),
    ),
}
_TONGUES = ("en", "en", "en", "accents", "accents", "zh", "zh", "ja")
_JOINTS = {"en": " ", "accents": " ", "zh": "", "ja": ""}
_SCALE = (12, 14, 16, 19, 21, 24, 26, 28, 31, 33)
"""Pentatonic: whatever follows whatever, it sounds well."""
_NUMBERED_FROM = 500
"""Words alone would repeat: from here on a title says the number of its song."""


@dataclass(frozen=True, slots=True)
class Song:
    number: int
    mirror: bool
    title: str
    artists: tuple[str, ...]
    album: str
    track_no: int
    year: int
    isrc: str | None
    suffix: str
    melody: Melody
    lyrics: str | None

    @property
    def id(self) -> str:
        return f"{'mirror' if self.mirror else 'song'}-{self.number}"

    @property
    def tags(self) -> dict[str, str]:
        return {"title": self.title, "artist": ", ".join(self.artists), "album": self.album, "comment": self.id}


@dataclass(frozen=True, slots=True)
class Listing:
    """A playlist without its songs."""

    number: int
    name: str
    description: str
    count: int

    @property
    def id(self) -> str:
        return f"list-{self.number}"


POOLS = (("charts", "Charts"), ("paihang", "排行榜"), ("radio", "Radio"))


@dataclass(frozen=True, slots=True)
class Catalog:
    seed: int = 1
    songs: int = 120
    playlists: int = 12
    mirrored: frozenset[int] = MIRRORED
    """The numbers of the songs that exist in a second edition, which is in no playlist but is found by searching."""

    def song(self, id: str) -> Song | None:
        edition, _, number = id.partition("-")
        if not number.isascii() or not number.isdecimal() or len(number) > 12 or int(number) >= self.songs:
            return None
        if edition == "song":
            return self.song_at(int(number))
        if edition == "mirror" and int(number) in self.mirrored:
            return self.song_at(int(number), mirror=True)
        return None

    def song_at(self, number: int, *, mirror: bool = False) -> Song:
        dice = self._dice("song", number)
        tongue = _TONGUES[dice[0] % len(_TONGUES)]
        title = _name(tongue, dice[1], dice[2])
        artists = [_band(tongue, dice[3], dice[4])]
        if dice[5] < 40:
            artists.append(_band(_TONGUES[dice[6] % len(_TONGUES)], dice[7], dice[8]))
        if number in ODD:
            title, artist = ODD[number]
            artists = [artist]
        elif number >= _NUMBERED_FROM:
            title += f" No. {number}"
        return Song(
            number=number,
            mirror=mirror,
            title=title,
            artists=tuple(artists),
            album=_name(tongue, dice[9], dice[10]),
            track_no=1 + dice[11] % 12,
            year=1970 + dice[12] % 56,
            isrc=f"ZZDSG26{number:05}" if number < 100_000 and not mirror and dice[13] % 2 else None,
            suffix=".wav" if number % 5 == 4 else ".flac",
            melody=_melody(dice),
            lyrics=_lyrics(title) if dice[14] % 3 == 0 else None,
        )

    def listing(self, id: str) -> Listing | None:
        kind, _, number = id.partition("-")
        if kind != "list" or not number.isascii() or not number.isdecimal() or len(number) > 12:
            return None
        return self.listing_at(int(number)) if int(number) < self.playlists else None

    def listing_at(self, number: int) -> Listing:
        dice = self._dice("list", number)
        tongue = _TONGUES[dice[0] % len(_TONGUES)]
        name = f"{_name(tongue, dice[1], dice[2])} {number + 1}"
        return Listing(number, name, f"{number + 1} / {self.playlists}", self._own(number) + self._guests(number))

    def tracks(self, listing: Listing, start: int, stop: int) -> Iterator[Song]:
        """Its own songs, then guests: songs of other playlists."""
        first, own = self._first(listing.number), self._own(listing.number)
        turn = self._dice("list", listing.number)[3]
        for place in range(start, min(stop, listing.count)):
            if place < own:
                yield self.song_at(first + place)
            else:
                guest = place - own
                host = (listing.number + 1 + (turn + guest) % (self.playlists - 1)) % self.playlists
                yield self.song_at(self._first(host) + guest)

    def pool_size(self, pool: int) -> int:
        return len(range(pool, self.playlists, len(POOLS))) + self._shared(pool)

    def pool(self, pool: int, start: int, stop: int) -> Iterator[Listing]:
        numbers = range(pool, self.playlists, len(POOLS))
        for place in range(start, min(stop, self.pool_size(pool))):
            yield self.listing_at(numbers[place] if place < len(numbers) else 0)

    def search(self, text: str, limit: int) -> list[Song]:
        """Songs whose title or band has all words of the text, mirrors too; those named just so first.

        It looks at the first 500 songs and at those whose number is a word of the text: enough for a demo.
        """
        words = text.casefold().split()
        numbers = [*range(min(self.songs, _NUMBERED_FROM))]
        numbers += [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 12]
        found: list[Song] = []
        for number in dict.fromkeys(numbers):
            if not words or number >= self.songs:
                continue
            song = self.song_at(number)
            if all(word in f"{song.title} {' '.join(song.artists)}".casefold() for word in words):
                found.append(song)
                if number in self.mirrored:
                    found.append(self.song_at(number, mirror=True))
        return sorted(found, key=lambda song: song.title.casefold() != text.casefold())[:limit]

    def _shared(self, pool: int) -> int:
        """The first playlist is in the last pool too."""
        return int(pool == len(POOLS) - 1 and self.playlists > len(POOLS))

    def _first(self, playlist: int) -> int:
        """The number of a playlist's first own song. Lengths vary by a third either way."""
        even = playlist * self.songs // self.playlists
        if playlist in (0, self.playlists):
            return even
        sway = self.songs // self.playlists // 3
        return even + self._dice("first", playlist)[0] * sway // 255 - sway // 2

    def _own(self, playlist: int) -> int:
        return self._first(playlist + 1) - self._first(playlist)

    def _guests(self, playlist: int) -> int:
        """At most half of the shortest playlist, so that the n-th guest is always some playlist's n-th song."""
        if self.playlists < 2:
            return 0
        return self._dice("list", playlist)[4] % (self.songs // self.playlists // 2 + 1)

    def _dice(self, kind: str, number: int) -> bytes:
        return hashlib.blake2b(f"{self.seed} {kind} {number}".encode()).digest()


def _name(tongue: str, first: int, second: int) -> str:
    heads, tails = _WORDS[tongue]
    return heads[first % len(heads)] + _JOINTS[tongue] + tails[second % len(tails)]


def _band(tongue: str, first: int, second: int) -> str:
    name = _name(tongue, second, first)
    return {"en": f"The {name}s", "accents": f"{name} Trio", "zh": f"{name}乐队", "ja": f"{name}楽団"}[tongue]


def _melody(dice: bytes) -> Melody:
    """2 to 5 seconds, ending on a long note of the home key."""
    beats = 10 + dice[15] % 16
    degree, notes, played = dice[16] % len(_SCALE), [], 0
    key = (0, 3, 5)[dice[17] % 3]
    for roll in dice[18:]:
        if played >= beats:
            break
        length = 2 if roll & 0x40 else 1
        degree = max(0, min(len(_SCALE) - 1, degree + roll % 5 - 2))
        notes.append((REST if roll % 16 == 15 else key + _SCALE[degree], length))
        played += length
    notes.append((key + _SCALE[5 * (dice[17] >> 7)], 2))
    return Melody(44_100 if dice[17] & 0x40 else 22_050, dice[17] >> 5 & 1, tuple(notes))


def _lyrics(title: str) -> str:
    words = title.split()
    return "\n".join(f"[00:0{second}.00]{' '.join(words[: second + 1])}" for second in range(min(3, len(words)))) + "\n"
