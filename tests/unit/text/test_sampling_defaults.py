"""What a model's generation_config.json means for requests that do not say."""

import json
from pathlib import Path

import pytest

from ninfer.api import ModelError
from ninfer.text.sampling_defaults import SamplingDefaults


def _read(folder: Path, **config: object) -> SamplingDefaults:
    (folder / "generation_config.json").write_text(json.dumps(config), encoding="utf-8")
    return SamplingDefaults.from_path(folder)


def test_without_a_file_they_are_those_of_openai(tmp_path: Path) -> None:
    assert SamplingDefaults.from_path(tmp_path) == SamplingDefaults()
    assert SamplingDefaults.from_path(tmp_path / "model.gguf").temperature == 1.0


def test_the_file_counts(tmp_path: Path) -> None:
    read = _read(tmp_path, do_sample=True, temperature=0.6, top_k=20, top_p=0.95, min_p=None)
    assert read == SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95)


def test_no_sampling_is_greedy_whatever_the_temperature(tmp_path: Path) -> None:
    assert _read(tmp_path, do_sample=False, temperature=0.6).temperature == 0.0


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", "hot"), ("top_p", 1.5), ("top_k", True), ("min_p", -1)]
)
def test_a_bad_value_is_named(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"generation_config.json: {name} is"):
        _read(tmp_path, **{name: value})
