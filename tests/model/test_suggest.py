import pytest

from dalsegno.model.suggest import closest, did_you_mean


def test_the_closest_name_is_suggested() -> None:
    assert did_you_mean("inter", ["interval", "timeout"]) == ' Did you mean "interval"?'


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("EVENT_RETENTION_DAYS", "RETENTION_EVENTS_DAYS"),
        ("TIMEOUT_READ", "READ_TIMEOUT"),
        ("retention_log_days", "RETENTION_LOGS_DAYS"),
        ("LIBRARY_ROT", "LIBRARY_ROOT"),
    ],
)
def test_neither_case_nor_the_order_of_words_hides_what_was_meant(typed: str, meant: str) -> None:
    keys = ["LIBRARY_ROOT", "READ_TIMEOUT", "RETENTION_EVENTS_DAYS", "RETENTION_JOBS_DAYS", "RETENTION_LOGS_DAYS"]
    assert closest(typed, keys) == meant


def test_with_nothing_close_the_known_names_are_listed() -> None:
    assert did_you_mean("q", ["b", "a"]) == " Known: a, b."
    assert did_you_mean("q", map("name{}".format, range(20))).endswith(", ….")


def test_with_nothing_known_nothing_is_said() -> None:
    assert did_you_mean("q", []) == ""
