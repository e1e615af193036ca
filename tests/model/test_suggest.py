from dalsegno.model.suggest import did_you_mean


def test_the_closest_name_is_suggested() -> None:
    assert did_you_mean("inter", ["interval", "timeout"]) == ' Did you mean "interval"?'


def test_with_nothing_close_the_known_names_are_listed() -> None:
    assert did_you_mean("q", ["b", "a"]) == " Known: a, b."
    assert did_you_mean("q", map("name{}".format, range(20))).endswith(", ….")


def test_with_nothing_known_nothing_is_said() -> None:
    assert did_you_mean("q", []) == ""
