"""What codes mean and what helps, in the reader's language. What was said in English stays below, as the details."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from dalsegno.engine.holds import UNSAID
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.words import Words

MEANINGS = {
    # what the console and the engine refuse
    "api_key_needed": (N_("A key is needed"), N_("Send the key of REQUESTS_API_KEY along.")),
    "command_refused": (N_("That cannot be done now"), N_("Look at its state and try again.")),
    "config_changed": (
        N_("The settings file has changed meanwhile"),
        N_("Look at it again and make your change there."),
    ),
    "config_invalid": (N_("These settings cannot be used"), N_("Mend what is wrong with them; nothing was saved.")),
    "config_not_writable": (
        N_("The settings file cannot be written"),
        N_("Give the user that runs this write access to it."),
    ),
    "config_nowhere": (N_("There is no settings file to save"), N_("Start the process with --env-file.")),
    "cron_invalid": (
        N_("This cron expression cannot be used"),
        N_("It has five fields: minute, hour, day of month, month, day of week."),
    ),
    "database_corrupt": (N_("The database file is damaged"), N_("Move it aside and restore a backup.")),
    "database_full": (N_("The disk of the database is full"), N_("Free some space; work goes on by itself.")),
    "database_on_network_share": (
        N_("The database is on a network share"),
        N_("Put it on a local disk, or use PostgreSQL."),
    ),
    "database_read_only": (
        N_("The database cannot be written"),
        N_("Give this user write access to the file and its folder."),
    ),
    "database_unavailable": (
        N_("The database does not answer"),
        N_("Check that it runs; work goes on by itself once it is back."),
    ),
    "database_url_invalid": (N_("The address of the database cannot be used"), N_("Correct DATABASE_URL.")),
    "engine_already_running": (N_("Another engine is at work on this database"), N_("Stop that one first.")),
    "host_refused": (
        N_("This console does not answer to this name"),
        N_("Use another of its addresses, or add the name to CONSOLE_HOSTS."),
    ),
    "schedule_busy": (
        N_("It was not run: the job of its last run is not over"),
        N_("Wait for that job, cancel it, or let runs of this schedule queue or overlap."),
    ),
    "schedule_exists": (N_("There is a schedule of this name already"), N_("Give this one another name.")),
    "input_invalid": (N_("That cannot be used as it is"), N_("Correct it and try again.")),
    "internal_error": (
        N_("Something unexpected went wrong"),
        N_("Nothing that was finished is lost; the log says more."),
    ),
    "login_failed": (N_("This is not the password"), ""),
    "login_needed": (N_("A sign-in is needed"), ""),
    "login_throttled": (N_("Too many wrong passwords"), N_("Try again a little later.")),
    "method_not_allowed": (
        N_("This address takes no such request"),
        N_("Open it from the menu, or use the button of its page."),
    ),
    "not_found": (N_("There is nothing here"), N_("It was removed, or its number is another.")),
    "origin_refused": (
        N_("A page of another site asked for this"),
        N_("Nothing was changed. Do it here, if you meant to."),
    ),
    "parse_failed": (
        N_("The parse request has no result"),
        N_("Look at the details; the sources may know more later."),
    ),
    "payload_too_large": (N_("That is too large"), N_("Store large data as a file and pass its path.")),
    "query_invalid": (N_("This filter cannot be read"), N_("Correct it at the place that is named.")),
    "read_only": (
        N_("This console only shows"),
        N_("To change something, start it without --read-only and without CONSOLE_READ_ONLY."),
    ),
    "request_invalid": (N_("The request cannot be used as it is"), N_("Correct it and try again.")),
    "backup_damaged": (N_("This backup cannot be used"), N_("Use another backup.")),
    "backup_no_room": (N_("There is no room for the backup"), N_("Free some space, or write it to another disk.")),
    "backup_refused": (N_("No backup was written"), N_("Choose another name, or replace the file: --force")),
    "engine_at_work": (N_("An engine is at work on this database"), N_("Stop it first and try again.")),
    "move_failed": (N_("Nothing was moved"), N_("The old database is as it was; mend what is wrong and try again.")),
    "pooler_between": (
        N_("PostgreSQL's own programs do not go through a pooler"),
        N_("Give the way to the server itself: LISTEN_DATABASE_URL"),
    ),
    "restore_refused": (N_("Nothing was restored"), N_("Name an empty database, or replace this one: --force")),
    "schema_missing": (N_("The database is of an older version"), N_("Run: dalsegno migrate")),
    "schema_needs_backup": (
        N_("No backup could be made before the change of the schema"),
        N_("Mend that, or run: dalsegno migrate --without-backup"),
    ),
    "schema_needs_room": (
        N_("There is no room for the backup before the change of the schema"),
        N_("Free some space, or run: dalsegno migrate --without-backup"),
    ),
    "schema_newer": (N_("The database is of a newer version"), N_("Install the version that wrote it, or newer.")),
    "service_unknown": (N_("Nobody knows this service"), N_("Name the module that defines it in SERVICES.")),
    "setting_invalid": (N_("A setting is wrong"), N_("Correct it in the settings file.")),
    "too_many_requests": (N_("Too many requests at once"), N_("Try again a little later.")),
    "job_pruned": (N_("The job is being removed"), N_("It was kept as long as the settings say. Start a new one.")),
    "archive_damaged": (N_("The archive is damaged"), N_("Nothing was changed. Use another copy of it.")),
    "archive_refused": (N_("The archive cannot be used now"), N_("The details say why.")),
    "twin_active": (N_("Another job does the same work"), N_("Wait for it, or cancel it first.")),
    "tool_failed": (N_("A program of PostgreSQL failed"), N_("Its own words say why.")),
    "tool_missing": (
        N_("A program of PostgreSQL is missing"),
        N_("Install PostgreSQL's client programs, or name their folder: PG_BIN"),
    ),
    "upstream_busy": (N_("The search source is not asked just now"), N_("Try again a little later.")),
    "upstream_failed": (N_("The search source could not be asked"), N_("Check its address and the network.")),
    "upstream_unknown": (N_("There is no such search source"), N_("See REQUESTS_SOURCES and KODIK_URL.")),
    "workflow_invalid": (N_("The workflow is not valid"), ""),
    "workflow_unknown": (N_("There is no such workflow"), ""),
    # what items meet
    "access_denied": (N_("The store does not allow it"), N_("Give the account rights to read and write there.")),
    "address_refused": (
        N_("The address was not asked"),
        N_("It lies inside the own network; allow it in the settings of the source."),
    ),
    "bad_answer": (N_("The source answers with something unusable"), ""),
    "bad_encoding": (N_("The answer is packed wrongly"), ""),
    "bad_header": (N_("A header for this address cannot be sent"), ""),
    "bad_snapshot": (N_("What is kept about it cannot be read"), ""),
    "bad_url": (N_("This is not an address that can be asked"), ""),
    "blocked_by_law": (N_("The source may not give it, by law"), ""),
    "bucket_missing": (N_("The bucket is not there"), N_("Make it, or correct OBJECT_STORE.")),
    "canceled": (N_("It was stopped on request"), ""),
    "checksum_mismatch": (N_("The file is not what was sent"), N_("Retry: it is fetched anew.")),
    "clock_skew": (N_("The clock of this machine is wrong"), N_("Set it.")),
    "conflict": (N_("Another request changes the same file"), N_("It is tried again by itself.")),
    "connection_lost": (N_("The connection broke off"), N_("It goes on from there by itself.")),
    "corrupt_audio": (N_("The audio file is damaged"), N_("Retry later, or add a source that has it whole.")),
    "disk_full": (N_("The disk is full"), N_("Free some space, or resume with another folder.")),
    "empty_file": (N_("The file is empty"), ""),
    "error": (N_("It failed"), ""),
    "exists": (N_("Something else is there already"), ""),
    "file_elsewhere": (
        N_("The file is on another machine"),
        N_("Start a worker there, or mount the library here, then retry."),
    ),
    "file_missing": (N_("The file is not there any more"), N_("Download the song again.")),
    "forbidden": (N_("The source refuses it"), N_("Check the account of the source in the settings.")),
    "geo_restricted": (N_("It is not offered in this country"), ""),
    "gone": (N_("The source does not have it any more"), ""),
    "holds_credentials": (N_("Its address holds a login, which is not given out"), ""),
    "html_instead_of_audio": (
        N_("A web page came instead of audio"),
        N_("Check the account of the source in the settings."),
    ),
    "insufficient_quota": (N_("The quota is used up"), ""),
    "interrupted_too_often": (
        N_("It was interrupted too often"),
        N_("Something in it may end the process: look at the log before you retry."),
    ),
    "json_instead_of_audio": (
        N_("A message came instead of audio"),
        N_("Check the account of the source in the settings."),
    ),
    "key_invalid": (N_("The store cannot keep this name"), ""),
    "key_too_long": (N_("The name is too long for the store"), ""),
    "length_mismatch": (N_("More or fewer bytes came than announced"), N_("Retry: it is fetched anew.")),
    "library_missing": (N_("The library is not there"), N_("Mount it, or resume with another folder.")),
    "library_unwritable": (
        N_("The library cannot be written to"),
        N_("Give this user write access, or resume with another folder."),
    ),
    "line_too_long": (N_("The program of the source sends too much at once"), ""),
    "no_address": (N_("The source gave no address"), ""),
    "no_decoder": (N_("No decoder knows such a link"), N_("See REQUESTS_DECODERS and EXTERNAL_DECODERS.")),
    "no_location": (N_("The playlist does not say where it is"), ""),
    "no_media": (N_("There is no video behind this link"), ""),
    "no_search_source": (N_("No search source is configured"), N_("Set KODIK_URL, or a source that can search.")),
    "not_a_feed": (N_("This is no feed"), ""),
    "not_a_playlist": (N_("This is no playlist"), ""),
    "not_audio": (N_("This is no audio file"), ""),
    "not_downloaded": (N_("There is no file yet"), N_("Download the song first.")),
    "not_offered": (N_("The source does not offer this"), ""),
    "not_subsonic": (N_("This is no Subsonic server"), N_("Correct SUBSONIC_URL.")),
    "not_taken": (N_("An answer was not taken in time"), ""),
    "odd_answer": (N_("The source answers something that was not asked"), ""),
    "packed_body": (N_("The bytes come packed though they were not to be"), ""),
    "part_busy": (N_("Somebody else is writing this file"), ""),
    "parts_gone": (N_("The store forgot the unfinished upload"), N_("It starts over by itself.")),
    "path_refused": (N_("It leads out of its folder"), ""),
    "paused_by_service": (N_("The service asked for a pause"), ""),
    "payment_required": (N_("The source wants to be paid"), ""),
    "plan_failed": (N_("Its items could not be listed"), N_("Look at the details, mend it and resume.")),
    "rate_limited": (N_("The source wants fewer calls"), N_("It is tried again by itself.")),
    "redirect_loop": (N_("It leads from page to page without end"), ""),
    "redirect_refused": (N_("It leads elsewhere with what was meant for it alone"), ""),
    "request_timeout": (N_("The store waited too long for the bytes"), N_("It is tried again by itself.")),
    "slow_down": (N_("The store wants fewer calls"), N_("It is tried again by itself.")),
    "song_gone": (N_("No source has this song any more"), ""),
    "source_setting": (
        N_("A setting of this source cannot be used"),
        N_("Correct it in the settings; the details name it."),
    ),
    "source_changed": (N_("The file changed while it was being sent"), N_("Retry once it is still.")),
    "store_failed": (N_("The store failed"), ""),
    "store_full": (N_("The store is full"), N_("Make room there, then resume.")),
    "store_missing": (N_("The store is not there"), N_("Mount it, then resume.")),
    "store_refused": (N_("The store refused it"), ""),
    "store_unavailable": (N_("The store is not available just now"), N_("It is tried again by itself.")),
    "stream_only": (N_("It is offered only as a stream in pieces"), ""),
    "timeout": (N_("It took too long"), ""),
    "too_large": (N_("It is too large"), ""),
    "too_large_for_disk": (N_("It is larger than what is free on the disk"), N_("Free some space, then retry.")),
    "truncated_audio": (N_("The audio file ends too early"), N_("Retry later, or add a source that has it whole.")),
    "truncated_body": (N_("The transfer ended too early"), N_("It goes on from there by itself.")),
    "unauthorized": (N_("The source does not accept the account"), N_("Correct the account in the settings.")),
    "unreachable": (N_("It cannot be reached"), N_("Check the network; it is tried again by itself.")),
    "unreadable": (N_("The file cannot be read"), ""),
    "unreadable_file": (N_("The file cannot be read"), ""),
    "unsupported_page": (N_("This page is not supported"), ""),
    "unusable": (N_("What came cannot be used"), ""),
    "unusable_answer": (N_("The source answers with something unusable"), ""),
    "upload_gone": (N_("The store forgot the unfinished upload"), N_("It starts over by itself.")),
    "upstream_changed": (N_("The search source answers in another shape than is known"), ""),
    "verification_failed": (N_("The bytes were damaged on their way"), N_("Retry: it is sent anew.")),
    "worker_lost": (N_("The process that worked on it ended"), N_("It goes on by itself, or when the job is resumed.")),
    "wrong_credentials": (N_("The store does not accept the keys"), N_("Check S3_ACCESS_KEY and S3_SECRET_KEY.")),
    "wrong_region": (N_("The bucket is in another region"), N_("Check S3_REGION and S3_ENDPOINT.")),
}
"""By code: what it means, and what helps, where something does."""
PAUSED = {
    "rescuer": N_("crash recovery"),
    "scheduler": N_("interrupted"),
}
"""Why the engine paused something by itself, by which part of it did."""
BREAKERS = {
    "rate_limit": N_("Rate limit reached"),
    "quota": N_("Quota used up"),
    "ban": N_("Shut out by the provider"),
    "outage": N_("The provider does not answer as it should"),
    "manual": N_("Stopped by the service's own rule"),
}
N_("paused by an operator")


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error as a page shows it."""

    status: int
    code: str
    title: str
    fix: str
    """Empty where the details say it in the reader's language anyway."""
    details: str


def trouble(words: Words, status: int, code: str, details: str) -> Trouble:
    title, fix = MEANINGS.get(code) or (HTTPStatus(status).phrase, "")
    fix = "" if words.english or not fix else words.text(fix)
    return Trouble(status, code, words.text(title), fix, words.text(details) if details else "")


def meaning(words: Words, code: str | None) -> str:
    """In a few words beside the code itself; nothing in English, where the message says it."""
    if words.english or code is None:
        return ""
    if code.startswith("http_"):
        return words.text("the other side answers HTTP %(status)s", status=code.removeprefix("http_"))
    return words.text(MEANINGS[code][0]) if code in MEANINGS else ""


def refusal(words: Words, code: str | None, details: str | None) -> str:
    """An error in a sentence; what was said in English follows in brackets."""
    said = meaning(words, code)
    told = words.text(details) if details else ""  # our own sentences are known in every language
    if not said or not told or told != details:
        return told or said
    return words.text("%(meaning)s (%(details)s)", meaning=said, details=details)


def reason(words: Words, text: str | None, by: str | None) -> str:
    """Why something stands still. Operators say it in their own words; the engine's are known by who set them."""
    if words.english or not text:
        return text or ""
    if text == UNSAID:
        return words.text(UNSAID)
    code, colon, rest = text.partition(": ")
    if by == "service" and colon:
        return refusal(words, code, rest) if code in MEANINGS else text
    return words.text(PAUSED[by]) if by in PAUSED else text


def stopped(words: Words, text: str | None, kind: str | None, by: str | None) -> str:
    """Why a breaker is open: its kind, and what the other side said in brackets. People say it in their own words."""
    if words.english or not text or by != "engine" or kind not in BREAKERS:
        return text or ""
    return words.text("%(meaning)s (%(details)s)", meaning=words.text(BREAKERS[kind]), details=text)


def filters(words: Words) -> dict[str, Callable[..., Any]]:
    """For templates: `item.error_code|meaning`."""
    return {
        "meaning": lambda code: meaning(words, code),
        "refusal": lambda code, details: refusal(words, code, details),
        "reason": lambda text, by: reason(words, text, by),
        "stopped": lambda text, kind, by: stopped(words, text, kind, by),
        "trouble": lambda code: trouble(words, 500, code, "") if meaning(words, code) else None,
    }
