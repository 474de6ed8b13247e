"""Turn the formulas of the pages into MathML while the site is built, so that no script has to be loaded to read them."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex (generic) leaves in the page.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    r"""Replace every formula of a page.

    >>> on_page_content(r'<span class="arithmatex">\(x\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    html = INLINE.sub(lambda found: convert(unescape(found[1])), html)
    return DISPLAY.sub(lambda found: convert(unescape(found[1]), display="block"), html)
