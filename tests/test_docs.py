"""The links, paths, definitions, modules and targets that the documents name exist.

Every check is a function of a root and of pages (text by path), so that planted mistakes show that
it finds them.
"""

import re
from pathlib import Path

import pytest

from tests.tools.markdown import anchors, code, links, options_of
from tests.tools.tracked_files import Pages, read_tracked

ROOT = Path(__file__).parents[1]
PACKAGES = ("encoder", "index", "evaluation", "training", "service")
_FOLDERS = (*PACKAGES, "benchmarks", "tests", "docs", "deploy")
_PATH = re.compile(rf"(?<![\w/.<{{-])(?:{'|'.join(_FOLDERS)})/[\w./*-]*[\w/*]")
_DEFINITION = re.compile(r"([\w/]+\.py)::(\w+)")
_FILE_NAME = re.compile(r"^[\w-]+\.(?:py|toml|yml)$")
_MODULE = re.compile(r"\bpython3? -m ([\w.]+)(.*)")


@pytest.fixture(scope="module")
def pages() -> Pages:
    return read_tracked(ROOT, "*.md")


@pytest.fixture(scope="module")
def modules() -> Pages:
    return read_tracked(ROOT, "*.py")


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


def missing_paths(root: Path, pages: Pages) -> list[str]:
    """Return the paths below folders of the repository that pages name and that do not exist."""
    names = {path.name for path in root.rglob("*") if path.suffix in {".py", ".toml", ".yml"}}
    missing = []
    for path, text in pages.items():
        found = set(_PATH.findall(text))
        missing += [f"{path}: {one}" for one in sorted(found) if not list(root.glob(one))]
        bare = {one for one in code(text) if _FILE_NAME.match(one)}
        missing += [f"{path}: {one}" for one in sorted(bare - names)]
    return missing


def missing_paths_in_code(root: Path, modules: Pages) -> list[str]:
    """Return the paths in backticks in modules that do not exist."""
    missing = []
    for path, text in modules.items():
        for quoted in re.findall(r"`([^`\n]+)`", text):
            match = _PATH.fullmatch(quoted)
            if match and not list(root.glob(quoted)):
                missing.append(f"{path}: {quoted}")
    return missing


def missing_definitions(root: Path, pages: Pages) -> list[str]:
    """Return the names `path.py::name` of pages that the file does not define."""
    missing = []
    for path, text in pages.items():
        for file, name in _DEFINITION.findall(text):
            source = (root / file).read_text(encoding="utf-8") if (root / file).exists() else ""
            if not re.search(rf"^(?:async def|def|class) {name}\b", source, re.MULTILINE):
                missing.append(f"{path}: {file}::{name}")
    return missing


def bad_module_commands(root: Path, pages: Pages) -> list[str]:
    """Return the commands `python -m MODULE OPTIONS` that name no module to run or no option."""
    bad = []
    for path, text in pages.items():
        for line in code(text):
            for module, rest in _MODULE.findall(line):
                if module.partition(".")[0] not in _FOLDERS:
                    continue
                path_of = root / module.replace(".", "/")
                file = path_of / "__main__.py" if path_of.is_dir() else path_of.with_suffix(".py")
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


def test_links_lead_somewhere(pages: Pages) -> None:
    assert not dead_links(ROOT, pages)


def test_paths_exist(pages: Pages, modules: Pages) -> None:
    assert not missing_paths(ROOT, pages)
    planted = {path: text for path, text in modules.items() if path != "tests/test_docs.py"}
    assert not missing_paths_in_code(ROOT, planted)


def test_definitions_exist(pages: Pages) -> None:
    assert not missing_definitions(ROOT, pages)
    assert len(_DEFINITION.findall(pages["docs/architecture.md"])) > 30


def test_commands_of_modules_can_be_run(pages: Pages, modules: Pages) -> None:
    docstrings = {
        path: "\n".join(f"    {line.strip()}" for line in text.splitlines() if "python -m" in line)
        for path, text in modules.items()
        if path != "tests/test_docs.py"
    }
    assert not bad_module_commands(ROOT, {**pages, **docstrings})


def test_make_targets_exist(pages: Pages) -> None:
    assert not unknown_make_targets((ROOT / "Makefile").read_text(encoding="utf-8"), pages)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for folder in ("docs", "index/store", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/there.md").write_text("# A heading, here\n```\n# no heading\n```\n")
    (tmp_path / "index/store/schema.py").touch()
    (tmp_path / "benchmarks/run.py").write_text(
        'def main(size: int) -> None: ...\nif __name__ == "__main__": main(1)\n'
    )
    (tmp_path / "benchmarks/library.py").touch()
    return tmp_path


def test_a_dead_link_is_found(planted: Path) -> None:
    good = "[a](docs/there.md) [b](docs/there.md#a-heading-here) [c](https://example.org/x)"
    assert not dead_links(planted, {"x.md": good})
    bad = '[a](docs/gone.md) [b](docs/there.md#no-heading) [c](#none) <img src="gone.png">'
    (planted / "x.md").write_text(bad)
    assert len(dead_links(planted, {"x.md": bad})) == 4
    assert not dead_links(planted, {"docs/x.md": "[up](../docs/there.md)"})
    assert dead_links(planted, {"docs/x.md": "[up](docs/there.md)"})


def test_a_missing_path_is_found(planted: Path) -> None:
    good = "`index/store/schema.py`, index/*/schema.py, `schema.py`, `index/store/`, papers/x.py"
    assert not missing_paths(planted, {"x.md": good})
    bad = "`index/store/gone.py`, in index/gone/*.py, `gone.py`, `gone.yml`"
    assert len(missing_paths(planted, {"x.md": bad})) == 4
    assert not missing_paths_in_code(planted, {"x.py": '"""See `index/store/schema.py`."""'})
    assert missing_paths_in_code(planted, {"x.py": '"""See `index/schema.py`."""'})


def test_a_missing_definition_is_found(planted: Path) -> None:
    assert not missing_definitions(planted, {"x.md": "`benchmarks/run.py::main`"})
    for bad in ("run.py::mai", "library.py::main", "gone.py::main"):
        assert missing_definitions(planted, {"x.md": f"`benchmarks/{bad}`"}), bad


def test_a_command_without_module_or_option_is_found(planted: Path) -> None:
    assert not bad_module_commands(planted, {"x.md": "    python -m benchmarks.run --size 1"})
    for bad in ("gone", "library", "run --sise 1", "run \\\n    --sise 1"):
        assert bad_module_commands(planted, {"x.md": f"```\npython -m benchmarks.{bad}\n```"}), bad


def test_an_unknown_make_target_is_found() -> None:
    makefile = "test: x\n\ttrue\n"
    assert not unknown_make_targets(makefile, {"x.md": "`make test`, which can make sense"})
    assert unknown_make_targets(makefile, {"x.md": "```\nmake tests\n```"})
