"""The page at / as it is served, without a browser."""

import re
from typing import Any

import pytest
from bs4 import BeautifulSoup

from service.web.page import FILES, page, page_headers
from service.web.report import content_security_policy

TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FILES.iterdir())}


def directives() -> dict[str, list[str]]:
    policy = page_headers()["Content-Security-Policy"]
    return {name: sources for name, *sources in (part.split() for part in policy.split("; "))}


def test_the_root_is_the_page_with_its_policy(library: Any) -> None:
    response = library.get("/")
    assert (response.status_code, response.text) == (200, page())
    for name, value in page_headers().items():
        assert response.headers[name] == value


def test_a_comparison_is_served_with_its_policy_and_is_not_kept(library: Any) -> None:
    body = {"left": {"text": "Bees fly."}, "right": {"text": "Ants dig."}}
    headers = library.post("/compare", json=body, headers={"accept": "text/html"}).headers
    policy = f"{content_security_policy()}; frame-ancestors 'none'"
    assert headers["content-security-policy"] == policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_served_with_type_and_revalidated(library: Any, name: str) -> None:
    response = library.get(f"/static/{name}")
    assert response.status_code == 200
    kinds = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg"}
    assert response.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-content-type-options"] == "nosniff"
    again = library.get(f"/static/{name}", headers={"If-None-Match": response.headers["etag"]})
    assert again.status_code == 304


def test_the_policy_allows_only_this_server_and_comparison() -> None:
    policy = directives()
    assert policy["default-src"] == ["'none'"]
    assert [policy[name] for name in ("base-uri", "form-action", "frame-ancestors")] == [
        ["'none'"]
    ] * 3
    for name in ("script-src", "style-src"):
        own, digest = policy[name]
        assert own == "'self'"
        assert f"{name} {digest};" in content_security_policy()
    assert policy["connect-src"] == policy["img-src"] == ["'self'"]
    assert "unsafe" not in str(policy)
    assert "http" not in str(policy)


def test_the_page_has_no_inline_script_style_or_listener() -> None:
    soup = BeautifulSoup(page(), "html.parser")
    assert [entry["src"] for entry in soup.find_all("script")] == ["static/app.js"]
    assert not any(entry.string for entry in soup.find_all("script"))
    assert not soup.find_all("style")
    for element in soup.find_all(True):
        assert not [name for name in element.attrs if name == "style" or name.startswith("on")]


def test_ids_are_unique_and_what_names_one_finds_it() -> None:
    soup = BeautifulSoup(page(), "html.parser")
    ids = [element["id"] for element in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    named = [element["for"] for element in soup.find_all(attrs={"for": True})]
    for attribute in ("aria-labelledby", "aria-describedby"):
        named += [element[attribute] for element in soup.find_all(attrs={attribute: True})]
    named += [link["href"][1:] for link in soup.find_all("a", href=re.compile("^#"))]
    assert len(named) > 10
    assert set(named) <= set(ids)
    modules = [text for name, text in TEXTS.items() if name.endswith(".js")]
    used = {name for text in modules for name in re.findall(r'byId\("([\w-]+)"\)', text)}
    assert len(used) > 30
    assert used <= set(ids)


def test_no_file_names_another_host_or_parses_markup() -> None:
    for name, text in TEXTS.items():
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)
        assert [address for address in addresses if "www.w3.org" not in address] == [], name
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in text, name
