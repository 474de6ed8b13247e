"""An analysis on disk: one JSON file that people can read, one npz file for the arrays; no pickle, never half written."""

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..core import DataError, Density, EigenPairs, Enclosure, Estimate, Layout, Spectrum
from ..core.spectrum import LABELS
from .derived import Condition
from .provenance import Provenance, Stage

if TYPE_CHECKING:
    from .record import Analysis

FORMAT, VERSION = "eigenscape.analysis", 1
JSON_NAME, ARRAYS_NAME = "analysis.json", "analysis.npz"
SPECTRA = ("spectrum", "closed_form")
DENSITIES = ("density", "ggn_density")
PAIRS = ("hessian", "lowest", "ggn")
PLAIN = ("name", "loss", "gradient_norm", "gradient_share", "num_samples", "learning_rate", "theorem", "notes")

Arrays = dict[str, np.ndarray]


def plain(x: Any) -> Any:
    """Turn tensors, tuples and numbers that JSON lacks into what JSON has.

    >>> plain({"a": torch.tensor([1.0, float("inf")]), "b": (1, None)})
    {'a': [1.0, 'inf'], 'b': [1, None]}
    """
    if isinstance(x, Tensor):
        return plain(x.tolist())
    if isinstance(x, Mapping):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, tuple | list):
        return [plain(item) for item in x]
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x


def _floats(x: Any) -> Any:
    """Undo `plain` for a number or nested list of numbers."""
    return [_floats(item) for item in x] if isinstance(x, list) else float(x)


def summary(analysis: "Analysis") -> dict[str, Any]:
    """Return everything but the large arrays as plain JSON values; keys are the fields' names, and what follows from them."""
    out: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    out |= {name: getattr(analysis, name) for name in PLAIN}
    out["num_parameters"] = analysis.num_parameters
    out["layout"] = dict(zip(analysis.layout.names, analysis.layout.shapes))
    out |= {name: asdict(value) if (value := getattr(analysis, name)) else None for name in ("sharpness", "gap")}
    out["critical_learning_rate"] = asdict(analysis.critical_learning_rate)
    out["condition"] = asdict(analysis.condition)
    out |= {name: _pairs_tree(getattr(analysis, name)) for name in PAIRS}
    trace = analysis.trace
    out["trace"] = _public(trace) | {"interval95": trace.interval(0.95)}
    out |= {name: _density_tree(getattr(analysis, name)) for name in DENSITIES}
    out["blocks"] = {name: _density_tree(d) for name, d in analysis.blocks.items()}
    out |= {name: _spectrum_tree(getattr(analysis, name)) for name in SPECTRA}
    out["provenance"] = asdict(analysis.provenance)
    return plain(out)


def _public(result: Any, *left_out: str) -> dict[str, Any]:
    return {f.name: getattr(result, f.name) for f in fields(result) if f.name not in left_out}


def _pairs_tree(pairs: EigenPairs | None) -> dict[str, Any] | None:
    if pairs is None:
        return None
    ends = {name: _public(end) if (end := getattr(pairs, name)) else None for name in ("top", "bottom")}
    return _public(pairs, "vectors", "top", "bottom") | ends


def _density_tree(density: Density | None) -> dict[str, Any] | None:
    return None if density is None else _public(density, "nodes", "weights")


def _spectrum_tree(spectrum: Spectrum | None) -> dict[str, Any] | None:
    if spectrum is None:
        return None
    return {"n": spectrum.n, "trace": spectrum.trace, "max": spectrum.max, "min": spectrum.min}


def arrays(analysis: "Analysis", vectors: bool = True) -> Arrays:
    """Return the large arrays, by field and part."""
    found: dict[str, Tensor] = {}
    for name in PAIRS:
        if (pairs := getattr(analysis, name)) is not None:
            found[f"{name}/vectors"] = pairs.vectors if vectors else pairs.vectors[:, :0]
    densities = {name: getattr(analysis, name) for name in DENSITIES}
    for name, density in (densities | {f"blocks/{n}": d for n, d in analysis.blocks.items()}).items():
        if density is not None:
            found |= {f"{name}/nodes": density.nodes, f"{name}/weights": density.weights}
    for name in SPECTRA:
        if (spectrum := getattr(analysis, name)) is not None:
            found |= {f"{name}/values": spectrum.values, f"{name}/multiplicities": spectrum.multiplicities}
            found[f"{name}/labels"] = torch.tensor([LABELS.index(label) for label in spectrum.labels])
    return {name: _numpy(t) for name, t in found.items()}


def _numpy(t: Tensor) -> np.ndarray:
    t = t.detach().cpu()
    return (t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).numpy()


def atomically(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let `write` fill a file beside `path`, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def save_arrays(path: Path, found: Mapping[str, Any]) -> Path:
    """Write an npz file, whole or not at all."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, **found)

    return atomically(path, write)


def write_record(analysis: "Analysis", folder: Path, vectors: bool = True) -> Path:
    """Write both files; the JSON file last, so that a folder that has it is complete."""
    (folder / JSON_NAME).unlink(missing_ok=True)
    save_arrays(folder / ARRAYS_NAME, arrays(analysis, vectors))
    text = json.dumps(summary(analysis), indent=1, ensure_ascii=False, allow_nan=False)
    atomically(folder / JSON_NAME, lambda part: part.write_text(text + "\n", encoding="utf-8"))
    return folder


def read_record(folder: Path) -> dict[str, Any]:
    """Read the fields of an analysis; anything else than what `write_record` wrote is refused."""
    path = folder / JSON_NAME
    if not path.is_file():
        raise DataError(f"{folder} holds no {JSON_NAME}; expected a folder that analysis.save(folder) wrote.")
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); expected a file that analysis.save(folder) wrote.") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise DataError(f"{path} is JSON of another kind; expected a file that analysis.save(folder) wrote.")
    if tree.get("version") != VERSION:
        raise DataError(f"{path} has format version {tree.get('version')}; this release reads {VERSION}: analyse again.")
    try:
        with (folder / ARRAYS_NAME).open("rb") as file, np.load(file, allow_pickle=False) as found:
            return _fields(tree, {name: torch.from_numpy(found[name]) for name in found.files})
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        what = f"{type(error).__name__}: {error}"
        raise DataError(f"{folder} is damaged ({what}); expected the two files that analysis.save(folder) wrote.") from None


def _fields(tree: dict[str, Any], found: dict[str, Tensor]) -> dict[str, Any]:
    plain_fields = {name: tree[name] for name in PLAIN}
    numbers = {n: _floats(tree[n]) for n in ("loss", "gradient_norm", "gradient_share", "num_samples")}
    layout = Layout(tuple(tree["layout"]), tuple(tuple(shape) for shape in tree["layout"].values()))
    how: dict[str, Any] = dict(tree["provenance"])
    how["stages"] = tuple(Stage(**stage) for stage in how["stages"])
    return (
        plain_fields
        | numbers
        | {"layout": layout, "trace": _estimate(tree["trace"])}
        | {"condition": Condition(float(tree["condition"]["value"]), tree["condition"]["meaning"])}
        | {name: _pairs(tree[name], name, found) for name in PAIRS}
        | {name: _density(tree[name], name, found) for name in DENSITIES}
        | {"blocks": {name: _density(d, f"blocks/{name}", found) for name, d in tree["blocks"].items()}}
        | {name: _spectrum(tree[name], name, found) for name in SPECTRA}
        | {"provenance": Provenance(**how)}
    )


def _tensor(x: Any) -> Tensor:
    return torch.tensor(_floats(x), dtype=torch.float64)


def _enclosure(tree: Any) -> Enclosure | None:
    return tree and Enclosure(_tensor(tree["lower"]), _tensor(tree["upper"]), tree["probability"])


def _pairs(tree: Any, name: str, found: dict[str, Tensor]) -> EigenPairs | None:
    if tree is None:
        return None
    numbers = {part: _tensor(tree[part]) for part in ("values", "residual_norms", "intervals")}
    ends = {part: _enclosure(tree[part]) for part in ("top", "bottom")}
    return EigenPairs(**tree | numbers | ends | {"vectors": found[f"{name}/vectors"]})


def _estimate(tree: Any) -> Estimate:
    given = {name: tree[name] for name in ("num_matvecs", "status")}
    return Estimate(_tensor(tree["value"]), _tensor(tree["stderr"]), float(tree["dof"]), **given)


def _density(tree: Any, name: str, found: dict[str, Tensor]) -> Density | None:
    if tree is None:
        return None
    arrays = {part: found[f"{name}/{part}"] for part in ("nodes", "weights")}
    return Density(**tree | arrays | {"resolution": _tensor(tree["resolution"])})


def _spectrum(tree: Any, name: str, found: dict[str, Tensor]) -> Spectrum | None:
    if tree is None:
        return None
    labels = tuple(LABELS[i] for i in found[f"{name}/labels"].tolist())
    return Spectrum(found[f"{name}/values"], found[f"{name}/multiplicities"], labels)
