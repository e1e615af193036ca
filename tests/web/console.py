"""What every page of the console must be, whatever it shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlsplit, urlunsplit

from dalsegno.web.topics import TOPICS
from tests.web.conftest import Desk

ENGLISH, CHINESE = "en", "zh-CN"
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """A page as a list of its elements; it minds that every tag is closed."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        assert not self.open, f"left open: {[element.tag for element in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag} {self.open[-1].attributes}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        return [
            element
            for element in self.elements
            if tag in ("", element.tag)
            and all(element.attributes.get(key.strip("_")) == value for key, value in attributes.items())
        ]

    def by_id(self, id: str) -> Element:
        (found,) = [element for element in self.elements if element.attributes.get("id") == id]
        return found


def get(desk: Desk, path: str, language: str = ENGLISH, status: int = 200) -> Page:
    answer = desk.http.get(path, headers={"accept-language": language})
    assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:2000]}"
    assert answer.headers["content-type"].startswith("text/html"), path
    return Page(answer.text)


def look_at(page: Page, where: str) -> None:
    """What no page and no region may have."""
    for element in page.elements:
        names = element.attributes
        assert "style" not in names, f"{where}: a style in <{element.tag}>"
        assert element.tag != "style", f"{where}: a style sheet inside the page"
        assert not [name for name in names if name.startswith("on")], f"{where}: {names}"
        assert element.tag != "script" or names.get("src", "").startswith("/static/"), f"{where}: a script inside"
        assert not names.get("href", "").startswith("javascript:"), where
        if element.tag == "form" and "hx-post" in names:
            assert (names["method"], names["action"]) == ("post", names["hx-post"]), f"{where}: {names}"
    ids = Counter(element.attributes["id"] for element in page.elements if "id" in element.attributes)
    assert [id for id, times in ids.items() if times > 1] == [], f"{where}: ids must be unique"
    assert "{{" not in page.source, where
    assert "%(" not in page.source, where


def check_page(desk: Desk, path: str, status: int = 200) -> Page:
    """The page and every one of its regions, in both languages. Returns the English one."""
    for language in (CHINESE, ENGLISH):
        page = get(desk, path, language, status)
        look_at(page, f"{path} in {language}")
        assert page.all("html")[0].attributes["lang"] == language
        assert len(page.all("main")) == 1
        assert len(page.all("h1")) == 1, f"{path}: a page has one heading"
        regions = [element for element in page.elements if "data-live" in element.attributes]
        for region in regions if status == 200 else []:
            check_region(desk, path, region, language)
    return page


def check_region(desk: Desk, path: str, region: Element, language: str) -> None:
    for topic in region.attributes["data-live"].split():
        assert topic.partition(":")[0] in {*TOPICS, "job", "item"}, topic
    id = region.attributes["id"]
    parts = urlsplit(region.attributes.get("data-src", path))
    query = "&".join(filter(None, [parts.query, f"fragment={id.replace('-', '_')}"]))
    alone = get(desk, urlunsplit(parts._replace(query=query)), language)
    look_at(alone, f"{path}: {id} in {language}")
    first = alone.elements[0]
    assert (first.tag, first.attributes["id"]) == (region.tag, id), "a region is its block, with the id of its block"
