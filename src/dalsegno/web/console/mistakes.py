"""What is wrong with a settings file or a filter, and the way out, in the reader's language, by the kind of mistake."""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.config.fields import key_of
from dalsegno.config.model import Fault
from dalsegno.errors import QueryInvalid
from dalsegno.insight.query import PROBLEMS
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.words import Words

REASONS = {
    "nul": N_("there is a NUL character in it."),
    "half_character": N_("there is half a character in it."),
    "no_entry": N_("this is not KEY=value."),
    "unclosed": N_("a quote is opened here and never closed."),
    "key_unknown": N_("this key is not known."),
    "twice": N_("it is set in line %(n)s already; the last one counts."),
    "cap_below_base": N_("BACKOFF_CAP_SEC must not be smaller than BACKOFF_BASE_SEC."),
    "secret_gone": N_("it had a value then, and none is stored now."),
    "mask_unknown": N_("*** stands for what is stored, and nothing like this is."),
    "unreadable": N_("the file cannot be read."),
    "environment": N_("the file and the environment together cannot be used."),
    "int_parsing": N_("this is not a whole number."),
    "int_from_float": N_("this is not a whole number."),
    "float_parsing": N_("this is not a number."),
    "finite_number": N_("this is not a number."),
    "bool_parsing": N_("this is neither true nor false."),
    "literal_error": N_("this is none of the choices."),
    "greater_than": N_("it must be greater than %(gt)s."),
    "greater_than_equal": N_("it must be at least %(ge)s."),
    "less_than_equal": N_("it must be at most %(le)s."),
    "string_too_short": N_("it is too short."),
    "string_too_long": N_("it is too long."),
    "string_pattern_mismatch": N_("it is not written as it must be."),
    "meaningless_name_template": N_("no names can be made of this template."),
    "meaningless_object_store": N_("this is not a place files can be uploaded to."),
    "meaningless_retention_archive": N_("this is not a place months can be put away in."),
    "meaningless_s3_endpoint": N_("this is not the address of a server."),
    "meaningless_sources": N_("it names a source that there is not."),
    "meaningless_download_sources": N_("it names a source that there is not."),
}
OTHERWISE = N_("this value cannot be used.")
WAYS = {
    "nul": N_("Take it out: no editor shows it."),
    "half_character": N_("Type the character again."),
    "no_entry": N_("Write KEY=value, or begin the line with # to make it a remark."),
    "unclosed": N_("Write KEY=value, or begin the line with # to make it a remark."),
    "twice": N_("Take one of them out."),
    "cap_below_base": N_("Write at least %(least)s as BACKOFF_CAP_SEC."),
    "secret_gone": N_("Write it into the file; until then it is empty."),
    "mask_unknown": N_("Write the value instead of ***, or take the line out."),
    "unreadable": N_("Save a new one here, or repair it where it is."),
    "environment": N_("The environment has a part in this: look there too."),
}
EXACT = frozenset(REASONS) - {"unreadable", "environment"} - {code for code in REASONS if code.startswith("meaning")}
"""Where the reason says all there is to say."""
MOST = 8
"""Names listed where none was meant."""


def reason(words: Words, fault: Fault) -> str:
    """Where the kind does not say it all, what was said in English follows in brackets."""
    if words.english:
        return fault.reason
    told = words.text(REASONS.get(fault.code, OTHERWISE), **{**fault.data, "": ""})
    return told if fault.code in EXACT else words.text(
        "%(meaning)s (%(details)s)", meaning=told, details=fault.reason
    )  # fmt: skip


def way_out(words: Words, fault: Fault) -> str:
    if words.english:
        return fault.suggestion
    if fault.code in WAYS:
        return words.text(WAYS[fault.code], **{**fault.data, "": ""})
    key = key_of(fault.key) if fault.key else None
    if key is None:
        meant = fault.data.get("meant")
        return words.text("Did you mean %(key)s?", key=meant) if meant else ""
    if key.choices:
        return words.text("Write one of: %(choices)s.", choices=", ".join(key.choices))
    if key.secret:
        return words.text("Write the whole value.")
    return words.text("For example %(example)s.", example=key.example) if key.example else ""


def of_query(words: Words, error: QueryInvalid) -> str:
    """What is wrong with a filter, where, and what was probably meant."""
    if words.english:
        return str(error)
    known, problem = error.details, PROBLEMS[error.details["kind"]]
    told = [words.text(problem, **{**known["data"], "": ""})]
    told.append(words.text("(at character %(n)s of the filter)", n=known["position"]))
    if known["meant"]:
        told.append(words.text("Did you mean %(key)s?", key=known["meant"]))
    elif known["known"]:
        names = known["known"]
        told.append(words.text("Known: %(names)s.", names=", ".join(names[:MOST]) + (", …" if names[MOST:] else "")))
    return "".join(told)


def filters(words: Words) -> dict[str, Callable[..., str]]:
    """For templates: `fault|wrong`, `fault|way_out` and `error|of_query`."""
    return {
        "wrong": lambda fault: reason(words, fault),
        "way_out": lambda fault: way_out(words, fault),
        "of_query": lambda error: of_query(words, error),
    }
