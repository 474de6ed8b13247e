"""The pages keep up with the code: public names, commands, and the order of the layers."""

import importlib
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import typer.main

import eigenscape as es
from eigenscape.cli import app
from eigenscape.curvature.engines.automatic import NAMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ALONE = ("core", "linop", "theory", "curvature", "solvers", "dynamics", "ensembles", "analysis", "report", "testing")
LAYERS = {name: name for name in ALONE} | {"experiments.machine": "experiments", "experiments.data": "experiments"}


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


help_texts = module_at(ROOT / "tools" / "help_texts.py")


def commands(group=None, before=""):
    """Every command by the words that call it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


@pytest.mark.parametrize("layer", LAYERS)
def test_every_public_name_of_a_layer_is_in_the_reference(layer):
    page = (DOCS / "reference" / f"{LAYERS[layer]}.md").read_text()
    shown = {line.rpartition(".")[2] for line in re.findall(r"^::: (eigenscape\.\S+)$", page, re.MULTILINE)}
    module = importlib.import_module(f"eigenscape.{layer}")
    names = {name for name in module.__all__ if not inspect.ismodule(getattr(module, name))}
    assert names <= shown


def test_every_name_that_the_reference_shows_exists():
    for page in (DOCS / "reference").glob("*.md"):
        for path in re.findall(r"^::: (eigenscape\.\S+)$", page.read_text(), re.MULTILINE):
            module, _, name = path.rpartition(".")
            assert hasattr(importlib.import_module(module), name), path


def test_every_top_level_name_is_in_the_table_of_public_names():
    page = (DOCS / "reference" / "index.md").read_text()
    assert [name for name in es.__all__ if f"[`es.{name}`](" not in page] == []


def test_every_top_level_name_but_the_errors_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    names = [n for n in es.__all__ if not (isinstance(found := getattr(es, n), type) and issubclass(found, Exception))]
    assert [name for name in names if not re.search(rf"`(es\.)?{name}[`(.]", text)] == []


def test_every_command_shows_its_help_on_the_page():
    marks = help_texts.MARK.findall((DOCS / "cli.md").read_text())
    assert sorted(marks) == sorted(["", *(name for name, _ in commands())])


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_a_help_text_has_every_option_and_fits_the_page(name):
    shown = help_texts.on_page_markdown(f"<!-- help: {name} -->")
    (command,) = (command for words, command in commands() if words == name)
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert options
    assert all(option in shown for option in options)
    assert max(map(len, shown.splitlines())) <= help_texts.WIDTH


def test_a_mark_without_a_command_is_an_error():
    with pytest.raises(LookupError, match="there is no command `eigenscape nothing`"):
        help_texts.on_page_markdown("<!-- help: nothing -->")


def test_the_pages_show_the_layers_that_the_linter_checks():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = "\n".join(contract["layers"])
    assert all(layers in (ROOT / page).read_text() for page in ("CONTRIBUTING.md", "docs/reference/index.md"))


def test_the_page_on_choosing_has_every_engine():
    listed = re.findall(r'^\| `"(\w+)"` \|', (DOCS / "choose.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_the_readme_has_the_table_that_the_script_wrote():
    table = (ROOT / "benchmarks" / "results" / "pitfalls.md").read_text().partition("\n\n")[0]
    assert table in (ROOT / "README.md").read_text()


def test_every_extra_that_a_message_names_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*(ROOT / "src").rglob("*.py"), *DOCS.rglob("*.md")]
    named = {name for f in files for names in re.findall(r"eigenscape\[([\w,]+)\]", f.read_text()) for name in names.split(",")}
    assert named
    assert named <= set(extras)
