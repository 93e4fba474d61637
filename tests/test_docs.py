"""The documents name links, commands, options, routes, settings and metrics that exist.

Every check is a function of pages (text by path), so that planted mistakes show that it finds them.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client import CollectorRegistry

from service.app import describe_app
from service.cli.main import make_app
from service.metrics import Metrics
from service.settings import Settings
from tests.kit.markdown import anchors, code, links, options_of
from tests.kit.reference import FOLDER, reference

ROOT = Path(__file__).parents[1]
OPERATIONS = "docs/operations.md"
README = "README.md"
PACKAGES = ("encoder", "index", "evaluation", "training", "service", "benchmarks", "tests")
_MODULE = re.compile(r"\bpython3? -m ([\w.]+)(.*)")
_ROUTE = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/[\w/{}-]*)")
_METRIC = re.compile(r"\blongmatch_[a-z0-9_]+")
_SETTING = re.compile(r"\bLONGMATCH_([A-Z0-9_]+)")
_COMMAND = re.compile(r"(?<!from )\blongmatch ((?:longmatch )?)([a-z][a-z-]*)([^|;&#)`]*)")

Pages = Mapping[str, str]  # text by path


def read_tracked(pattern: str) -> Pages:
    """Return the texts of the files that match a pattern and that Git tracks, or would."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run([*command, "--", pattern], capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="module")
def pages() -> Pages:
    return read_tracked("*.md")


@pytest.fixture(scope="module")
def modules() -> Pages:
    return read_tracked("*.py")


# --- links ----------------------------------------------------------------------------------


def dead_links(root: Path, pages: Pages) -> list[str]:
    """Return the relative links of pages whose file or heading does not exist."""
    dead = []
    for path, text in pages.items():
        for link in links(text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = (root / path).parent / target if target else root / path
            if not file.exists() or (
                anchor and anchor not in anchors(file.read_text(encoding="utf-8"))
            ):
                dead.append(f"{path}: {link}")
    return dead


def test_links_lead_somewhere(pages: Pages) -> None:
    assert not dead_links(ROOT, pages)


def missing_names(root: Path, text: str) -> list[str]:
    """Return the `file` and `file::name` of a text that the repository does not have."""
    missing = []
    for path, name in re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/.]+)(?:::(\w+))?`", text):
        file = root / path
        defined = rf"(?:def|class) {name}\b|^{name} = "
        if not file.exists() or (name and not re.search(defined, file.read_text(), re.MULTILINE)):
            missing.append(f"{path}::{name}")
    return missing


def test_files_and_names_in_the_documents_exist() -> None:
    for text in read_tracked("docs/*.md").values():
        assert missing_names(ROOT, text) == []
    assert missing_names(ROOT, "`service/engine.py::Gone`, `service/gone.py`") != []


def test_every_page_is_in_the_navigation_of_the_site(tmp_path: Path) -> None:
    site = ROOT / "zensical.toml"
    listed = re.findall(r'= "([\w/-]+\.md)"', site.read_text(encoding="utf-8"))
    assert sorted(f"docs/{page}" for page in listed) == sorted(read_tracked("docs/*.md"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(site, tmp_path)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [zensical, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout[-4000:]
    assert (tmp_path / "site/results/unseen/index.html").exists()


# --- modules and targets of make ------------------------------------------------------------


def bad_module_commands(root: Path, pages: Pages) -> list[str]:
    """Return the commands `python -m MODULE OPTIONS` that name no module to run or no option."""
    bad = []
    for path, text in pages.items():
        for module, rest in (found for line in code(text) for found in _MODULE.findall(line)):
            if module.partition(".")[0] not in PACKAGES:
                continue
            target = root / module.replace(".", "/")
            file = target.with_suffix(".py")
            file = file if file.exists() else target / "__main__.py"
            source = file.read_text(encoding="utf-8") if file.exists() else ""
            if '__name__ == "__main__"' not in source:
                bad.append(f"{path}: {module}")
                continue
            bad += [
                f"{path}: {module} --{option}"
                for option in options_of(rest)
                if not re.search(rf"\b{option.replace('-', '_')}: |\"--{option}\"", source)
            ]
    return bad


def unknown_make_targets(makefile: str, pages: Pages) -> list[str]:
    """Return the targets of `make TARGET` in pages that the Makefile does not have."""
    known = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    return [
        f"{path}: {target}"
        for path, text in pages.items()
        for line in code(text)
        for target in re.findall(r"^make ([\w-]+)", line)
        if target not in known
    ]


def test_commands_of_modules_and_make_exist(pages: Pages, modules: Pages) -> None:
    docstrings = {
        path: "\n".join(f"    {line.strip()}" for line in text.splitlines() if "python -m" in line)
        for path, text in modules.items()
        if path != "tests/test_docs.py"
    }
    assert not bad_module_commands(ROOT, {**pages, **docstrings})
    assert not unknown_make_targets((ROOT / "Makefile").read_text(encoding="utf-8"), pages)


# --- routes ---------------------------------------------------------------------------------


def routes() -> set[tuple[str, str]]:
    """Return (method, path) of every route of the API, with `{}` for each parameter."""
    paths: dict[str, dict[str, Any]] = describe_app().openapi()["paths"]
    return {
        (method.upper(), _plain(path))
        for path, operations in paths.items()
        for method in operations
    }


def _plain(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def undocumented_routes(routes: set[tuple[str, str]], pages: Pages) -> list[str]:
    """Return the routes whose path no page names."""
    text = _plain("\n".join(pages.values()))
    return [
        f"{method} {path}"
        for method, path in sorted(routes)
        if not re.search(re.escape(path) + r"(?![\w/{-])", text)
    ]


def unknown_routes(routes: set[tuple[str, str]], pages: Pages) -> list[str]:
    """Return the pairs of method and path in pages that the API does not have."""
    return [
        f"{page}: {method} {path}"
        for page, text in pages.items()
        for method, path in _ROUTE.findall(text)
        if (method, _plain(path)) not in routes
    ]


def test_every_route_is_documented(pages: Pages) -> None:
    users = {path: text for path, text in pages.items() if path.startswith((README, "docs/"))}
    assert not undocumented_routes(routes(), users)
    assert not unknown_routes(routes(), users)


# --- settings and metrics -------------------------------------------------------------------


def setting_rows() -> dict[str, str]:
    """Return, for each environment variable, how its row in the table of settings begins."""
    rows = {}
    for name, field in Settings.model_fields.items():
        default = "not set" if field.default in (None, ()) else f"`{field.default}`"
        rows[name.upper()] = f"| `LONGMATCH_{name.upper()}` | {default} |"
    return rows


def undocumented_settings(rows: Mapping[str, str], page: str) -> list[str]:
    """Return the settings whose row, with its default, is not in a page."""
    return [row for row in rows.values() if row not in page]


def unknown_settings(names: set[str], pages: Pages) -> list[str]:
    """Return the environment variables in pages that nothing reads."""
    return [
        f"{path}: LONGMATCH_{name}"
        for path, text in pages.items()
        for name in _SETTING.findall(text)
        if name not in names
    ]


def metric_names() -> set[str]:
    """Return the name of every metric as it is scraped; histograms without their suffix."""
    metrics = Metrics()
    names = set()
    for metric in vars(metrics).values():
        if not isinstance(metric, CollectorRegistry):
            [family] = metric.describe()
            names.add(family.name + ("_total" if family.type == "counter" else ""))
    return names


def undocumented_metrics(names: set[str], page: str) -> list[str]:
    """Return the metrics that have no row in a page."""
    return [name for name in sorted(names) if f"| `{name}" not in page]


def unknown_metrics(names: set[str], pages: Pages) -> list[str]:
    """Return the metrics in pages that the service does not expose."""
    known = names | {f"{name}{end}" for name in names for end in ("_bucket", "_sum", "_count")}
    return [
        f"{path}: {name}"
        for path, text in pages.items()
        for name in _METRIC.findall(text)
        if name not in known
    ]


def test_settings_are_documented_with_their_defaults(pages: Pages, modules: Pages) -> None:
    assert not undocumented_settings(setting_rows(), pages[OPERATIONS])
    of_tests = {
        name
        for path, text in modules.items()
        if path.startswith("tests/") and path != "tests/test_docs.py"
        for name in _SETTING.findall(text)
    }
    assert not unknown_settings(set(setting_rows()) | of_tests, pages)
    in_operations = {OPERATIONS: pages[OPERATIONS]}
    assert not unknown_settings(set(setting_rows()), in_operations)


def test_metrics_are_documented(pages: Pages) -> None:
    assert not undocumented_metrics(metric_names(), pages[OPERATIONS])
    assert not unknown_metrics(metric_names(), pages)


# --- commands -------------------------------------------------------------------------------


def commands(app: typer.Typer) -> dict[str, Any]:
    """Return the commands of an application by name; those of a group as `group command`."""
    found: dict[str, Any] = {}
    for name, command in vars(typer.main.get_command(app))["commands"].items():
        inner = getattr(command, "commands", None)
        found |= (
            {f"{name} {key}": value for key, value in inner.items()} if inner else {name: command}
        )
    return found


def undocumented_commands(known: Mapping[str, Any], page: str) -> list[str]:
    """Return the commands that a page does not show, and options and arguments without help."""
    text = " ".join(code(page))
    missing = [name for name in known if not re.search(rf"\b{name}\b(?!-)", text)]
    for name, command in known.items():
        for parameter in command.params:
            hidden = getattr(parameter, "hidden", False)  # an old name, which is rejected
            if not hidden and not getattr(parameter, "help", None):
                missing.append(f"{name}: {parameter.name} has no help")
    return missing


def unknown_commands(known: Mapping[str, Any], pages: Pages) -> list[str]:
    """Return the commands `longmatch NAME`, and their options, in pages that do not exist."""
    unknown = []
    for path, text in pages.items():
        for line in code(text):
            in_container = "docker" in line
            for service, name, rest in _COMMAND.findall(line):
                if in_container and not service:
                    continue  # the name of the service, then another program
                both = " ".join([name, *rest.split()[:1]])
                name = both if both in known else name
                if name not in known:
                    unknown.append(f"{path}: longmatch {name}")
                    continue
                options = {
                    option
                    for parameter in known[name].params
                    for option in (*parameter.opts, *parameter.secondary_opts)
                }
                unknown += [
                    f"{path}: longmatch {name} --{option}"
                    for option in options_of(rest)
                    if f"--{option}" not in options | {"--help"}
                ]
    return unknown


def test_commands_and_options_are_documented(pages: Pages) -> None:
    assert not undocumented_commands(commands(make_app()), pages[README])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    written = {name: text for name, text in pages.items() if not name.startswith("docs/reference/")}
    written["Makefile"] = f"```\n{makefile}\n```"
    assert not unknown_commands(commands(make_app()), written)


def test_the_reference_is_that_of_the_code() -> None:
    """`make reference` writes it."""
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written == reference()
