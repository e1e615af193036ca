"""Is this the same song? Titles are taken apart into name, version and guests, and what is known is compared.

A wrong song in somebody's library is worse than none: live, remix, cover and the like are kept apart, and in doubt the
answer is no. What cannot be known here: transliterated names of artists, and traditional against simplified characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from dalsegno.sources.model import Track

USABLE = 0.75
TITLE_MIN = 0.85
"""Below this it is another title, whoever sings it and however long it is."""
TITLE_MAX = 500
WORDS_MAX = 120
PEOPLE_MAX = 40


@dataclass(frozen=True, slots=True)
class Match:
    score: float
    """From 0 (another song) to 1 (nothing that is known speaks against it)."""
    usable: bool
    reason: str


class Name(NamedTuple):
    """A title taken apart."""

    core: str
    """Without version, guests and what shops and uploaders add; words parted by single spaces."""
    others: tuple[str, ...]
    """What else it may be called: without what stands in brackets, or by that alone."""
    version: frozenset[str]
    guests: tuple[str, ...]
    parts: frozenset[str]
    """Numbers and words for first and second part: two songs that differ only in these are two songs."""


# --- what stands beside a name ------------------------------------------------------------------

_TAGS = {
    tag: re.compile(pattern)
    for tag, pattern in {
        "live": (
            r"^live\b(?! (?:and|my|your|our|it|to|for|the|a|forever|like|as|while)\b)"
            r"|\blive[ -]?(?:version|ver\b|at\b|in\b|from\b|on\b|session|recording|take|mix|edit|acoustic|版)"
            r"|(?<!\bwe )(?<!\byou )(?<!\bi )(?<!\bthey )(?<!\bto )(?<!\blong )(?<!\bwho )(?<!\bpeople )(?<!\bcan )"
            r"(?<!\bwill )(?<!\bnot )(?<!\band )(?<!\bmust )\blive$"
            r"|\bin concert\b|\ben vivo\b|\bao vivo\b|\ben directo\b"
            r"|现场|現場|演唱[会會]|音[乐樂]节|音樂節|ライ[ブヴ]|라이브"
        ),
        "remix": (
            r"\bre-?mix|\b(?<!original )(?<!album )(?<!mono )(?<!stereo )(?<!single )(?<!main )(?<!full )mix\b"
            r"|\brework\b|\bbootleg\b|\bmash-?up\b|\bdub\b|\bdj\b|dj版|混音|リミックス|리믹스"
        ),
        "cover": (
            r"\bcover(?:ed)? by\b|(?<!\bfor )(?<!\bunder )(?<!\btake )(?<!\bthe )(?<!\ba )(?<!\bmy )"
            r"\bcover(?: version| ver\.?|版)?$|\btribute\b|翻唱|翻自|カ[バヴ][ァー]ー?|歌ってみた|커버"
        ),
        "acoustic": r"\bacoustic\b|\bunplugged\b|不插[电電]|[弹彈]唱|弾き語り|アコースティック|어쿠스틱",
        "a cappella": r"\ba ?cc?app?ell?a\b|清唱|[无無]伴奏|アカペラ|아카펠라",
        "instrumental": (
            r"\binstrumental\b|\binst\b|\boff[ -]?vocals?\b|\bbacking track\b|\bminus one\b|\bwithout vocals\b"
            r"|(?<![无無])伴奏|[纯純]音[乐樂]|インスト|オフボーカル|인스트|반주"
        ),
        "karaoke": r"\bkaraoke\b|\bktv\b|カラオケ|卡拉 ?ok|노래방",
        "demo": r"\bdemos?\b|小样|小樣|样带|デモ|데모",
        "edit": r"\bedit\b|\bshort (?:version|ver\b)|\btv[ -]?(?:size|edit|ver)|剪辑|剪輯|片段|短版",
        "extended": r"\bextended\b|\b12\" |加[长長]版",
        "sped up": r"\bspe?e?d[ -]?up\b|\bnightcore\b|加速|倍速",
        "slowed": r"\bslowed\b|\bslow version\b|慢速|降速|[减減]速",
        "orchestral": r"\borchestral?\b|\bsymphonic\b|交[响響]|管弦|オーケストラ",
        "piano": r"\bpiano\b|[钢鋼]琴|ピアノ|피아노",
        "guitar": r"\bguitar version\b|吉他版|ギター",
        "music box": r"\bmusic box\b|八音盒|オルゴール",
        "female": r"\bfemale\b|女[声聲]?版|女[声聲]",
        "male": r"\bmale\b|男[声聲]?版|男[声聲]",
        "children's": r"\bkids version\b|童[声聲]|儿童版|兒童版",
        "duet": r"\bduet\b|合唱版|[对對]唱版",
        "session": r"\bsessions?\b",
        "rehearsal": r"\brehearsal\b|彩排|リハーサル",
        "reprise": r"\breprise\b",
        "interlude": r"\binterlude\b|\bintro$|\boutro$",
        "alternate": r"\balternat(?:e|ive)\b|\bouttake\b|\btake \d",
        "re-recorded": r"\bre-?recorded\b|'s version$|重[录錄]|新版",
        "lo-fi": r"\blo-?fi\b",
        "8D": r"\b8d\b",
        "english": r"\benglish(?: version| ver\.?)?$|英[文语語]版",
        "mandarin": r"\bmandarin\b|\bchinese (?:version|ver\b)|[国國][语語]版?|中文版|普通[话話]版",
        "cantonese": r"\bcantonese\b|[粤粵][语語]版?",
        "japanese": r"\bjapanese(?: version| ver\.?)?$|日[文语語]版",
        "korean": r"\bkorean(?: version| ver\.?)?$|[韩韓][文语語]版",
        "spanish": r"\bspanish(?: version| ver\.?)?$|\ben español\b|\ben espanol\b",
    }.items()
}
_NOISE = re.compile(
    r"(?:\d{4} )?(?:digital(?:ly)? )?re-?master(?:ed)?(?: version| edition| \d{4})*(?: \d{4})?"
    r"|(?:the )?official(?: (?:music|lyrics?|audio|hd|4k|video|visuali[sz]er|clip|mv|m/v))*"
    r"|(?:music|lyrics?) video|lyrics?|with lyrics|audio|video|visuali[sz]er|m/?v|hd|hq|4k|hi-?res|flac|lossless"
    r"|explicit|clean|dirty|deluxe(?: edition| version)?|bonus(?: track)?|mono|stereo"
    r"|(?:single|album|original|studio|standard|full|lp|mono|stereo|main|explicit|clean|deluxe|remastered|regular)"
    r" (?:version|ver\.?|mix|edition|recording)|original|\d+(?:st|nd|rd|th) anniversary(?: edition| version)?"
    r"|(?:prod(?:uced)?\.?(?: by)?|from|taken from|theme (?:of|from)|ost) .*|(?:original )?soundtrack|ost|bgm"
    r"|官方(?:版|mv|完整版)?|高清(?:版|mv)?|[无無][损損](?:版|音[质質])?|高音[质質]|完整版|原版|正式版|[专專][辑輯]版|[单單]曲版"
    r"|[录錄]音室版|[动動][态態]歌[词詞]|歌[词詞]版|(?:.*)(?:主[题題]曲|片[头頭尾]曲|插曲|原[声聲][带帶])"
    r"|フルver\.?|フル|公式|歌詞付き|オリジナル"
)
_GUESTS = re.compile(
    r"^(?:feat(?:uring)?|ft|with(?! (?:or|you|me|my|your|us|it|a|love)\b)|w/)(?:\.|\b|(?<=/)) *(?P<who>.+)$"
)
_GUESTS_BARE = re.compile(r"(?<=\S) +(?:feat(?:uring)?\b\.?|ft\b\.?) *(?P<who>\S.*)$")
_OTHER_VERSION = re.compile(r"^(?P<which>.+?) ?(?:\bversion|\bver\.?|版|バージョン|버전)$")
_BARE = re.compile(
    r"(?<=\S) +(?P<tag>live(?:版| version| ver\.?)?|remix|acoustic(?: version)?|instrumental(?: version)?"
    r"|karaoke(?: version)?|demo|cover|radio edit|sped up|nightcore|slowed(?: (?:\+|and|&) reverb)?"
    r"|(?:\d{4} )?remaster(?:ed)?(?: \d{4})?|official (?:music |lyric )?(?:video|audio)"
    r"|dj版|现场|現場|翻唱|伴奏|[纯純]音[乐樂]|混音|ライブ|カバー|リミックス|インスト|カラオケ|라이브|리믹스|커버)$"
)
_BARE_CJK = re.compile(
    r"(?<=\w)(?P<tag>(?:live|dj|现场|現場|演唱[会會]|翻唱|伴奏|[纯純]音[乐樂]|混音|[女男童]声|[女男童]聲|[女男]|不插[电電]|[钢鋼]琴|吉他|加速"
    r"|慢速|降速|[国國粤粵][语語]|[英日韩韓中][文语語]|剪[辑輯]|加[长長]|完整|[专專][辑輯]|[单單]曲)版|ライブ版|ライブver\.?)$"
)
_LIVE_VERB = re.compile(
    r"(?:^|.*\b)(?:we|you|i|they|to|long|who|people|can|will|not|don't|and|must|may|let|all|where|us) live$"
)
_COVER_NOUN = re.compile(r".*\b(?:for|under|take|the|a|my|your|no|and) cover$")
_BRACKETS = re.compile(
    r"\(([^()]*)\)|\[([^\[\]]*)\]|\{([^{}]*)\}|【([^【】]*)】|<([^<>]*)>|〈([^〈〉]*)〉|\u3014([^\u3014\u3015]*)\u3015"
)
_WAVES = re.compile(r"(?P<head>\S) *[-~〜](?P<aside>[^-~〜]+)[-~〜]$")
_QUOTES = re.compile(r"[「」『』《》“”„\"]")
_DASH = re.compile(r"^(?P<head>.+?\S)(?: +[-–—~|·:]|:) *(?P<tail>[^-–—~|]+)$|^(?P<head2>.*\S)[–—](?P<tail2>[^–—]+)$")
_ROMAN = {"ii": "2", "iii": "3", "iv": "4", "vi": "6", "vii": "7", "viii": "8", "ix": "9"}
_PART = re.compile(r"[上中下前後后一二三四五六七八九十]|[前後后]篇|第[一二三四五六七八九十]+[章部集]?")
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i", "’": "'"}
)
_SMALL = frozenset({"the", "a", "an"})


def _folded(text: str) -> str:
    """NFKC, small letters, Latin without accents. Marks of other scripts stay: が is not か."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", text):
        if unicodedata.combining(char) and kept and "a" <= kept[-1] <= "z":
            continue
        kept.append(char)
    text = unicodedata.normalize("NFC", "".join(kept)).translate(_LETTERS)
    return " ".join(text.split())


def _words(text: str) -> str:
    """Letters and digits only; apostrophes join, everything else parts."""
    text = text.replace("'", "").replace("&", " and ")
    text = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text)
    return " ".join(text.split())


def _tags(text: str) -> frozenset[str]:
    return frozenset(tag for tag, pattern in _TAGS.items() if pattern.search(text))


class _Peeler:
    """Takes from a title, one after another, what is not its name."""

    def __init__(self, title: str) -> None:
        self.version: set[str] = set()
        self.guests: list[str] = []
        self.asides: list[str] = []
        text = _WAVES.sub(r"\g<head> (\g<aside>)", _QUOTES.sub(" ", _folded(title)))
        while (found := _BRACKETS.search(text)) is not None:
            inside = next(group for group in found.groups() if group is not None).strip()
            kept = "" if self._peel(inside) else inside
            self.asides += [kept] if kept else []
            before, after = text[: found.start()].strip(), text[found.end() :].strip()
            if not (before or after or self.asides):  # the whole title stands in brackets: they mean nothing
                self.version.clear()
                self.guests.clear()
                text = inside
                break
            mark = f" \x00{len(self.asides) - 1}\x00 " if kept else " "
            text = f"{before}{mark}{after}".strip()
        self.text = self._tails(" ".join(text.split()))

    def _peel(self, text: str) -> bool:
        """Whether this, in brackets or behind a dash, is no part of the name."""
        text = text.strip(" .,!-")
        if (found := _GUESTS.match(text)) is not None:
            self.guests += split_artists(found["who"])
            return True
        if not text or _NOISE.fullmatch(text):
            return True
        if tags := _tags(text):
            self.version |= tags
            return True
        pieces = re.split(r" *[,/;|] *| - ", text)
        if len(pieces) > 1 and all(_NOISE.fullmatch(piece.strip()) for piece in pieces):
            return True
        if (found := _OTHER_VERSION.match(text)) is not None and found["which"].strip():
            self.version.add(f"{_words(found['which']) or text}")
            return True
        return False

    def _tails(self, text: str) -> str:
        while True:
            if (found := _DASH.match(text)) is not None:
                head, tail = found["head"] or found["head2"], found["tail"] or found["tail2"]
                if self._bare(head) and "\x00" not in tail and self._peel(tail):
                    text = head.strip()
                    continue
            if (found := _GUESTS_BARE.search(text)) is not None and self._bare(text[: found.start()]):
                self.guests += split_artists(re.sub("\x00\\d+\x00", " ", found["who"]))
                text = text[: found.start()]
                continue
            found = _BARE.search(text) or _BARE_CJK.search(text)
            if found is None or not self._bare(text[: found.start()]):
                return text
            if _LIVE_VERB.match(text) or _COVER_NOUN.match(text) or not self._peel(found["tag"]):
                return text
            text = text[: found.start()].strip()

    @staticmethod
    def _bare(text: str) -> bool:
        return bool(_words(re.sub("\x00\\d+\x00", " ", text)))


def name_of(title: str) -> Name:
    return _name_of(title[:TITLE_MAX])


@lru_cache(maxsize=4096)
def _name_of(title: str) -> Name:
    peeled = _Peeler(title.replace("\x00", " "))
    full = re.sub("\x00(\\d+)\x00", lambda found: f" {peeled.asides[int(found[1])]} ", peeled.text)
    core = _words(full) or _words(_folded(title)) or _folded(title)
    short = _words(re.sub("\x00\\d+\x00", " ", peeled.text))
    others = [short, *map(_words, peeled.asides)] if peeled.asides else []
    parts = {_ROMAN.get(word, word) for word in core.split() if word in _ROMAN}
    parts |= {str(int(number)) for number in re.findall(r"\d+", core)}
    parts |= {aside for aside in peeled.asides if _PART.fullmatch(aside)}
    return Name(
        core,
        tuple(dict.fromkeys(other for other in others if other and other != core)),
        frozenset(peeled.version),
        tuple(peeled.guests),
        frozenset(parts),
    )


def normal(title: str) -> str:
    """The name alone: small letters, no accents, no punctuation, no guests, no version, nothing a shop adds."""
    return name_of(title).core


def version(title: str) -> frozenset[str]:
    """What kind of recording the title says it is; empty: the one of the studio."""
    return name_of(title).version


# --- artists ------------------------------------------------------------------------------------

_BETWEEN = re.compile(
    r"\s*(?:[;、;×|]|\bfeat(?:uring)?\b\.?|\bft\b\.?|\bvs\b\.?|(?<=\s)(?:&|\+|with|x)(?=\s)|(?<=\w{4})/(?=\w{4})"
    r"|\s/|/\s|(?<=[^\x00-\xff])[/&,·](?=\S)|(?<=\S)[/&](?=[^\x00-\xff])|,(?!\s*(?:the|jr|sr)\b)(?!\d))\s*",
    re.IGNORECASE,
)
_NOBODY = frozenset({"", "various artists", "various", "unknown artist", "unknown", "群星", "未知艺术家", "未知", "va"})


def split_artists(text: str) -> tuple[str, ...]:
    """The artists in one text, as written. A band whose name holds a separator is split too, on both sides alike."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())  # of a run of spaces the pattern tries every part
    found = (part.strip(" \t,&/") for part in _BETWEEN.split(text))
    return tuple(dict.fromkeys(part for part in found if part)) or ((text.strip(),) if text.strip() else ())


@lru_cache(maxsize=4096)
def _aliases(artist: str) -> frozenset[str]:
    """The names of one artist: with and without what stands in brackets."""
    text = _folded(artist)
    inside = [next(group for group in found if group) for found in _BRACKETS.findall(text) if any(found)]
    names = {re.sub(r"^the ", "", _words(each) or each.strip()) for each in (_BRACKETS.sub(" ", text), *inside)}
    return frozenset(name.replace(" ", "") for name in names if name not in _NOBODY)


def _people(artists: Iterable[str], guests: Iterable[str] = ()) -> list[frozenset[str]]:
    found = [
        _aliases(artist[:200]) for text in islice(artists, 2 * PEOPLE_MAX) for artist in split_artists(text[:TITLE_MAX])
    ]
    found += [_aliases(guest[:200]) for guest in guests]
    return list(dict.fromkeys(each for each in found if each))[:PEOPLE_MAX]


def _same_artist(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one & other) or any(_near(a, b) for a in one for b in other)


def _shared(some: list[frozenset[str]], others: list[frozenset[str]]) -> float:
    """0: nobody in common; 1: the same people; one missing of many counts little."""
    if not some or not others:
        return 0.0
    common = min(
        sum(any(_same_artist(a, b) for b in others) for a in some),
        sum(any(_same_artist(a, b) for a in some) for b in others),
    )
    if not common:
        return 0.0
    return 0.7 + 0.3 * common / max(len(some), len(others))


# --- titles -------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\d+|\S")


def _tokens(core: str) -> list[str]:
    """Words; one by one where a script has no spaces."""
    words = [_ROMAN.get(word, "part" if word == "pt" else word) for word in _WORD.findall(core)]
    return ([word for word in words if word not in _SMALL] or words)[:WORDS_MAX]


def _near(one: str, other: str) -> bool:
    """One letter more, less or other, in words long enough to bear it, and not the first."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 5 or len(long) - len(short) > 1 or short[0] != long[0] or any(c.isdigit() for c in short + long):
        return False
    start = next((n for n, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return short[start + (len(short) == len(long)) :] == long[start + 1 :]


def _alike(one: str, other: str) -> float:
    """The share of words they have in common, in the same order."""
    if one.replace(" ", "") == other.replace(" ", ""):
        return 1.0
    some, others = _tokens(one), _tokens(other)
    if some == others:
        return 1.0
    best = [0.0] * (len(others) + 1)
    for a in some:
        row = [0.0]
        for n, b in enumerate(others):
            same = 1.0 if a == b else 0.9 if _near(a, b) else 0.0
            row.append(max(best[n] + same, best[n + 1], row[n]))
        best = row
    return round(2 * best[-1] / (len(some) + len(others)), 6)


def _same_title(one: Name, other: Name) -> float:
    if one.parts != other.parts:
        return min(0.5, _alike(one.core, other.core))
    names = [(one.core, 1.0), *((name, 0.95) for name in one.others)]
    others = [(other.core, 1.0), *((name, 0.95) for name in other.others)]
    return max(_alike(a, b) * weight * weight_b for a, weight in names for b, weight_b in others)


# --- songs --------------------------------------------------------------------------------------


def _without_artist(title: str, known: list[frozenset[str]]) -> tuple[str, str]:
    """ "Artist - Title", as videos are named: the title and the artist, if it is one of those."""
    head, dash, tail = title[:TITLE_MAX].partition(" - ")
    if (
        dash
        and tail.strip()
        and any(_same_artist(_aliases(who), each) for who in split_artists(head) for each in known)
    ):
        return tail, head
    return title, ""


def _album_version(album: str) -> frozenset[str]:
    """Live albums seldom repeat it with each song."""
    found = version(album) & {"live", "karaoke", "instrumental", "cover"}
    return found | {"live"} if re.match(r"live (?:at|in|from|on)\b", _folded(album)) else found


def _length(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def off_by(wanted: float | None, found: float | None) -> float | None:
    """How far two lengths are apart: 0 is near enough, above 1 is another recording. None: not both are known."""
    one, other = _length(wanted), _length(found)
    if one is None or other is None:
        return None
    apart, longer = abs(one - other), max(one, other)
    near, far = max(3.0, longer * 0.03), max(10.0, longer * 0.10)
    return 0.0 if apart <= near else 1.0 + (apart - far) / far if apart > far else (apart - near) / (far - near)


def _isrc(track: Track) -> str:
    return re.sub(r"[^A-Z0-9]", "", (track.isrc or "").upper())


def _kind(version: frozenset[str]) -> str:
    return " + ".join(sorted(version)) or "studio"


def _who(track: Track) -> str:
    return ", ".join(track.artists)[:80]


def score(wanted: Track, found: Track) -> Match:
    """How sure we are that `found` is the song `wanted`."""
    apart = off_by(wanted.duration, found.duration)
    lengths = f"runs {clock(found.duration or 0)}, wanted {clock(wanted.duration or 0)}"
    if _isrc(wanted) and _isrc(wanted) == _isrc(found):
        if apart is not None and apart > 2.5:
            return Match(0.0, False, f"same ISRC, but {lengths}")
        return Match(1.0, True, "same ISRC")
    theirs, ours = _people(found.artists), _people(wanted.artists)
    wanted_title, wanted_head = _without_artist(wanted.title, theirs)
    found_title, found_head = _without_artist(found.title, ours)
    if wanted_head and found_head:  # both name the artist in front: nothing to take away
        wanted_title, wanted_head, found_title, found_head = wanted.title, "", found.title, ""
    want, have = name_of(wanted_title), name_of(found_title)
    if not want.core or not have.core:
        return Match(0.0, False, "no title to compare")
    title = 1.0 if wanted.title == found.title else _same_title(want, have)
    if title < TITLE_MIN:
        return Match(round(title * 0.6, 3), False, f'other title: "{found.title[:80]}"')
    kind, wanted_kind = have.version | _album_version(found.album), want.version | _album_version(wanted.album)
    if kind != wanted_kind:
        return Match(round(title * 0.5, 3), False, f"{_kind(kind)} version, wanted {_kind(wanted_kind)}")
    ours = _people((*wanted.artists, *([wanted_head] if wanted_head else [])), want.guests)
    theirs = _people((*found.artists, *([found_head] if found_head else [])), have.guests)
    artists = _shared(ours, theirs) if ours and theirs else None
    if artists == 0.0:
        return Match(round(title * 0.4, 3), False, _other_artist(wanted, found))
    if apart is not None and apart > 1:
        return Match(round(title * 0.5, 3), False, lengths)
    total = title if artists is None else title * 0.65 + artists * 0.35
    reason = "same title and artist" if artists else "same title"
    if bool(ours) != bool(theirs):
        total *= 0.85 if apart is not None else 0.7
        reason = "same title, artist unknown"
    if apart:
        total *= 1 - 0.3 * apart
        reason = f"{reason}, but {lengths}"
    total = round(total, 3)
    if total < USABLE:
        return Match(total, False, f"too unsure: {reason}")
    return Match(total, True, reason)


def _other_artist(wanted: Track, found: Track) -> str:
    said = f"other artist: {_who(found)}, wanted {_who(wanted)}"
    scripts = {any(c.isalpha() and ord(c) > 0x2FF for c in _who(track)) for track in (wanted, found)}
    return f"{said} (one may be the other in another script; that cannot be known)" if len(scripts) > 1 else said
