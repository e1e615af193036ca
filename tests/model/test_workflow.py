"""A malformed workflow is refused with the step, the fault and the likely intention."""

from typing import Any

import pytest

from dalsegno import Step, Workflow, parse_workflow
from dalsegno.errors import WorkflowInvalid


def plain(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "w", "steps": list(steps), **more}


def fault(data: Any, services: list[str] | None = None) -> str:
    with pytest.raises(WorkflowInvalid) as caught:
        parse_workflow(data, services)
    return str(caught.value)


def test_a_valid_workflow_is_accepted_with_its_defaults() -> None:
    found = parse_workflow(plain({"key": "a", "service": "x"}), ["x"])
    assert (found.name, found.version, found.lane.name) == ("w", 1, "default")
    assert (found.steps[0].max_attempts, found.steps[0].max_interruptions) == (3, 20)
    assert (found.steps[0].follow, found.steps[0].on_failure) == ("all", "continue")


def test_an_unknown_step_is_named_with_the_one_that_was_meant() -> None:
    text = fault(plain({"key": "download", "service": "x"}, {"key": "b", "service": "x", "depends_on": ["downlaod"]}))
    assert 'step "b" depends on unknown step "downlaod"' in text
    assert 'Did you mean "download"?' in text


def test_an_unknown_step_that_resembles_nothing_lists_the_known_ones() -> None:
    text = fault(plain({"key": "alpha", "service": "x"}, {"key": "b", "service": "x", "depends_on": ["zzz"]}))
    assert "Known: alpha." in text


def test_a_circle_is_shown_step_by_step() -> None:
    text = fault(
        plain(
            {"key": "a", "service": "x", "depends_on": ["c"]},
            {"key": "b", "service": "x", "depends_on": ["a"]},
            {"key": "c", "service": "x", "depends_on": ["b"]},
        )
    )
    assert "go in a circle" in text
    assert text.count("→") == 3


def test_a_step_that_depends_on_itself_is_refused() -> None:
    assert 'step "a" depends on itself' in fault(plain({"key": "a", "service": "x", "depends_on": ["a"]}))


def test_a_key_defined_twice_is_refused() -> None:
    text = fault(plain({"key": "a", "service": "x"}, {"key": "a", "service": "y"}))
    assert 'step "a" is defined 2 times' in text


def test_an_unknown_service_is_named_with_the_one_that_was_meant() -> None:
    text = fault(plain({"key": "a", "service": "rendrer"}), ["renderer", "noop"])
    assert 'step "a" uses unknown service "rendrer"' in text
    assert 'Did you mean "renderer"?' in text


def test_services_are_not_checked_where_none_are_known() -> None:
    assert parse_workflow(plain({"key": "a", "service": "anything"})).steps[0].service == "anything"


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (plain({"key": "a", "service": "x", "dependson": []}), ['"dependson"', 'step "a"', '"depends_on"']),
        (plain({"key": "a", "service": "x"}, step=[]), ['"step"', '"steps"']),
        (plain({"key": "a", "service": "x"}, lane={"max_activ": 1}), ['"max_activ"', '"max_active"']),
    ],
)
def test_an_unknown_key_is_refused_wherever_it_stands(data: Any, parts: list[str]) -> None:
    text = fault(data)
    assert "unknown key" in text
    assert all(part in text for part in parts)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "workflow",
        42,
        {},
        {"name": "w"},
        plain(),
        plain("step"),
        plain({"key": "a"}),
        plain({"key": "", "service": "x"}),
        plain({"key": "a b", "service": "x"}),
        plain({"key": "a/b", "service": "x"}),
        plain({"key": "a\x00", "service": "x"}),
        plain({"key": "a" * 101, "service": "x"}),
        plain({"key": "a", "service": "x", "max_attempts": 0}),
        plain({"key": "a", "service": "x", "max_attempts": "many"}),
        plain({"key": "a", "service": "x", "timeout": 0}),
        plain({"key": "a", "service": "x", "timeout": -1}),
        plain({"key": "a", "service": "x", "follow": "some"}),
        plain({"key": "a", "service": "x", "on_failure": "panic"}),
        plain({"key": "a", "service": "x"}, version=0),
        plain({"key": "a", "service": "x"}, lane={"max_active": 0}),
        plain({"key": "a", "service": "x"}, name="has space"),
        plain(*({"key": f"s{n}", "service": "x"} for n in range(201))),
        {"name": "w", "steps": {"a": {"service": "x"}}},
        {"name": "w", "steps": "a"},
    ],
)
def test_malformed_data_of_any_shape_is_one_readable_sentence(data: Any) -> None:
    text = fault(data)
    assert text.startswith("The workflow is not valid: ")
    assert "\n" not in text
    assert "pydantic" not in text


def test_a_step_that_follows_each_needs_exactly_one_step_to_follow() -> None:
    two = {"key": "c", "service": "x", "follow": "each", "depends_on": ["a", "b"]}
    text = fault(plain({"key": "a", "service": "x"}, {"key": "b", "service": "x"}, two))
    assert "must depend on exactly one step" in text
    assert "exactly one step" in fault(plain({"key": "a", "service": "x", "follow": "each"}))


def test_order_puts_every_step_after_what_it_depends_on() -> None:
    workflow = Workflow(
        name="w",
        steps=[
            Step(key="d", service="x", depends_on=["b", "c"]),
            Step(key="c", service="x", depends_on=["a"]),
            Step(key="b", service="x", depends_on=["a"]),
            Step(key="a", service="x"),
        ],
    )
    order = [step.key for step in workflow.check().order()]
    assert order[0] == "a"
    assert order[-1] == "d"
    assert sorted(order) == ["a", "b", "c", "d"]
