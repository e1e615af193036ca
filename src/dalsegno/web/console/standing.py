"""Why a playlist or a pool stands as it does, in the reader's language."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.catalog.judgement import Reason
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.words import Words, number

PLAIN = {
    "sync_failed": N_("the sync failed: %(names)s"),
    "collect_failed": N_("collecting failed: %(names)s"),
    "syncing": N_("syncing"),
    "collecting": N_("collecting"),
    "sync_pausing": N_("pausing before its sync"),
    "never_synced": N_("never synced"),
    "never_collected": N_("never collected"),
    "sync_unfinished": N_("its sync is unfinished in a job"),
    "no_songs": N_("no songs"),
    "no_playlists": N_("no playlists"),
    "playlist_gone": N_("the playlist is gone upstream"),
    "pool_gone": N_("the pool is gone upstream"),
    "not_downloaded": N_("%(n)s of %(of)s not downloaded yet"),
    "files_missing": N_("the files of %(n)s of %(of)s songs are not in the library any more"),
    "not_uploaded": N_("%(n)s of %(of)s not uploaded yet"),
    "some_error": N_("%(n)s of %(of)s playlists with errors"),
    "some_active": N_("%(n)s of %(of)s playlists at work"),
    "some_incomplete": N_("%(n)s of %(of)s playlists not complete"),
}


def reason(words: Words, each: Reason) -> str:
    n, names = each.n, ", ".join(each.names)
    if each.code in PLAIN:
        return words.text(PLAIN[each.code], n=number(n), of=number(each.of), names=names)
    match each.code:
        case "failed":
            return words.plural("%(n)s song failed: %(names)s", "%(n)s songs failed: %(names)s", n, names=names)
        case "downloading":
            return words.plural("downloading %(n)s song", "downloading %(n)s songs", n)
        case "uploading":
            return words.plural("uploading %(n)s song", "uploading %(n)s songs", n)
        case "pausing":
            return words.plural("pausing with %(n)s song unfinished", "pausing with %(n)s songs unfinished", n)
        case "unfinished":
            return words.plural("%(n)s song unfinished in a job", "%(n)s songs unfinished in a job", n)
        case "gone":
            return words.plural("%(n)s song gone upstream", "%(n)s songs gone upstream", n)
        case "here" if n == each.of:
            return words.plural("its song is downloaded", "all %(n)s songs downloaded", n)
        case "stored" if n == each.of:
            return words.plural("its song is downloaded and uploaded", "all %(n)s songs downloaded and uploaded", n)
        case "here":
            return words.text("%(n)s of %(of)s downloaded", n=number(n), of=number(each.of))
        case "stored":
            return words.text("%(n)s of %(of)s downloaded and uploaded", n=number(n), of=number(each.of))
        case "all_complete":
            return words.plural("its playlist is complete", "all %(n)s playlists complete", n)
    return each.says


def because(words: Words, reasons: Sequence[Reason]) -> str:
    return words.text("; ").join(reason(words, each) for each in reasons)
