"""All rows of the ledger, section by section, in the order in which the pages show them."""

import re

from . import attention, attention_bounds, bias, blocks, data, deep, quadratic, relu, rest, scalar, scalar_vectors
from .core import Ledger, Row

PAPERS = {
    "cracking": "S. P. Singh, W. Ormaniec and T. Hofmann, *Cracking the Hessian: closed-form Hessian spectra for "
    "fundamental neural networks*, 2026.",
    "closed-form": "S. P. Singh and T. Hofmann, *Closed form of the Hessian spectrum for some neural networks*, HiLD 2024.",
    "poster": "The poster of the same work, 2024.",
    "data": "*How the Hessian-spectrum of linear networks depends on data*, HiLD 2026.",
    "spectral-view": "*The spectral view of optimization: Hessian eigenvalues in deep learning*, a tutorial.",
}

MODULES = {
    "The scalar linear network": (scalar, scalar_vectors),
    "The scalar ReLU network": (relu,),
    "The scalar linear network with a hidden bias": (bias,),
    "Block-diagonal networks": (blocks,),
    "Self-attention": (attention, attention_bounds),
    "Norms, traces and observations": (rest,),
    "Deep linear networks and data": (deep, data),
    "The spectral view of optimisation": (quadratic,),
}


def natural(row: Row) -> tuple[int, int, str]:
    """Sort key within a section: A2 comes before A10, L8 before L8a, and longer names last.

    >>> from types import SimpleNamespace as N
    >>> [r.id for r in sorted([N(id="A10"), N(id="EIG1"), N(id="A2"), N(id="A2a")], key=natural)]
    ['A2', 'A2a', 'A10', 'EIG1']
    """
    letters, number, rest = re.split(r"(\d+)", row.id, maxsplit=1)
    return len(letters), int(number), rest


SECTIONS: dict[str, tuple[Row, ...]] = {
    title: tuple(sorted((row for module in modules for row in module.SECTION), key=natural))
    for title, modules in MODULES.items()
}
LEDGER = Ledger(row for rows in SECTIONS.values() for row in rows)
SECTION_OF = {row.id: title for title, rows in SECTIONS.items() for row in rows}
