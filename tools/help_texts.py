"""Show the help of a command where a page says `<!-- help: COMMAND -->`, as it is when the site is built."""

import os
import re
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from eigenscape.cli import app

MARK = re.compile(r"^<!-- help: ?([a-z ]*) -->$", re.MULTILINE)
WIDTH = 84  # columns that fit beside the navigation


def help_of(command: str) -> str:
    r"""Return what `eigenscape COMMAND --help` prints, without colours.

    >>> help_of("watch").splitlines()[0]
    'Usage: eigenscape watch [OPTIONS] {run_dir}'
    """
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}):
        result = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="eigenscape", color=False)
    if result.exit_code:
        raise LookupError(f"there is no command `eigenscape {command}`: {result.output.strip()}")
    lines = [line.rstrip() for line in result.output.splitlines()]
    return "\n".join(lines).strip()


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help in the place of each mark."""
    return MARK.sub(lambda found: f"```text\n{help_of(found[1])}\n```", markdown)
