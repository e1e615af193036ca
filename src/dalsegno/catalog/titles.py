"""Titles taken apart into name, version and guests, and how alike two names are."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from dalsegno.catalog.letters import BRACKETS, folded, near, words
from dalsegno.catalog.performers import TEXT_MAX, split_artists

WORDS_MAX = 120


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
_WAVES = re.compile(r"(?P<head>\S) *[-~〜](?P<aside>[^-~〜]+)[-~〜]$")
_QUOTES = re.compile(r"[「」『』《》“”„\"]")
_DASH = re.compile(r"^(?P<head>.+?\S)(?: +[-–—~|·:]|:) *(?P<tail>[^-–—~|]+)$|^(?P<head2>.*\S)[–—](?P<tail2>[^–—]+)$")
_ROMAN = {"ii": "2", "iii": "3", "iv": "4", "vi": "6", "vii": "7", "viii": "8", "ix": "9"}
_PART = re.compile(r"[上中下前後后一二三四五六七八九十]|[前後后]篇|第[一二三四五六七八九十]+[章部集]?")


def _tags(text: str) -> frozenset[str]:
    return frozenset(tag for tag, pattern in _TAGS.items() if pattern.search(text))


class _Peeler:
    """Takes from a title, one after another, what is not its name."""

    def __init__(self, title: str) -> None:
        self.version: set[str] = set()
        self.guests: list[str] = []
        self.asides: list[str] = []
        text = _WAVES.sub(r"\g<head> (\g<aside>)", _QUOTES.sub(" ", folded(title)))
        while (found := BRACKETS.search(text)) is not None:
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
            self.version.add(f"{words(found['which']) or text}")
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
        return bool(words(re.sub("\x00\\d+\x00", " ", text)))


def name_of(title: str) -> Name:
    return _name_of(title[:TEXT_MAX])


@lru_cache(maxsize=4096)
def _name_of(title: str) -> Name:
    peeled = _Peeler(title.replace("\x00", " "))
    full = re.sub("\x00(\\d+)\x00", lambda found: f" {peeled.asides[int(found[1])]} ", peeled.text)
    core = words(full) or words(folded(title)) or folded(title)
    short = words(re.sub("\x00\\d+\x00", " ", peeled.text))
    others = [short, *map(words, peeled.asides)] if peeled.asides else []
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


# --- how alike ----------------------------------------------------------------------------------

_SMALL = frozenset({"the", "a", "an"})
_WORD = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\d+|\S")


def _tokens(core: str) -> list[str]:
    """Words; one by one where a script has no spaces."""
    words = [_ROMAN.get(word, "part" if word == "pt" else word) for word in _WORD.findall(core)]
    return ([word for word in words if word not in _SMALL] or words)[:WORDS_MAX]


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
            same = 1.0 if a == b else 0.9 if near(a, b) else 0.0
            row.append(max(best[n] + same, best[n + 1], row[n]))
        best = row
    return round(2 * best[-1] / (len(some) + len(others)), 6)


def same_title(one: Name, other: Name) -> float:
    if one.parts != other.parts:
        return min(0.5, _alike(one.core, other.core))
    names = [(one.core, 1.0), *((name, 0.95) for name in one.others)]
    others = [(other.core, 1.0), *((name, 0.95) for name in other.others)]
    return max(_alike(a, b) * weight * weight_b for a, weight in names for b, weight_b in others)
