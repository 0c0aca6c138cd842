"""How a model wants its tokens chosen when a request does not say. Knows nothing about HTTP."""

from dataclasses import dataclass
from pathlib import Path

from ninfer.api.errors import ModelError
from ninfer.text.tokenizer import read_json_object

_LIMITS = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (-1, 2**31),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 10.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Values of request fields that are absent; names and meaning as in `SamplingParams`. The defaults are OpenAI's."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def from_path(cls, path: Path) -> "SamplingDefaults":
        """Read `generation_config.json` of a Hugging Face model directory.

        `"do_sample": false` is temperature 0. Keys that are absent or null keep OpenAI's defaults.

        Args:
            path: the directory, or a GGUF file, which has none.

        Raises:
            ModelError: the file is damaged, or a value is no number or out of range.
        """
        file = path / "generation_config.json"
        config = read_json_object(file)
        values = {name: _number(config, name, file) for name in _LIMITS}
        found = {name: value for name, value in values.items() if value is not None}
        if config.get("do_sample") is False:
            found["temperature"] = 0.0
        if "top_k" in found:
            found["top_k"] = max(int(found["top_k"]), 0)
        return cls(**found)  # type: ignore[arg-type]  # top_k is an int by now


def _number(config: dict[str, object], name: str, file: Path) -> float | None:
    value = config.get(name)
    if value is None:
        return None
    low, high = _LIMITS[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ModelError(f"{file}: {name} is {value!r}, expected a number in {low}..{high}")
    return value
