"""Which settings exist, and what a mistyped one may have meant. Knows nothing about values."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from pydantic.fields import FieldInfo

from ninfer.config.layers import ENV_PREFIX, ENV_SEPARATOR, KeyPath
from ninfer.config.settings import Settings


def known_fields() -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield (section, key) and the field of every setting, in the order of the sections."""
    for section, section_field in Settings.model_fields.items():
        model = section_field.annotation
        if isinstance(model, type):
            for key, field in model.model_fields.items():
                yield (section, key), field


def field_of(path: KeyPath) -> FieldInfo | None:
    """Return the field that `path` is, or lies in; None if there is none."""
    return dict(known_fields()).get(path[:2])


def is_options(field: FieldInfo) -> bool:
    """True for a table of options that a plugin reads."""
    return get_origin(field.annotation) is Mapping or field.annotation in {Mapping, dict}


def is_list(field: FieldInfo) -> bool:
    """True for a setting with several values."""
    return get_origin(field.annotation) is tuple


def is_unknown(path: KeyPath) -> bool:
    """True if no setting has this path."""
    field = field_of(path)
    return field is None or (len(path) > 2 and not is_options(field))


def suggestion(path: KeyPath, *, from_environ: bool) -> str:
    """Return "; did you mean ...?" for an unknown path, or which keys there are.

    Args:
        path: what was written.
        from_environ: spell the answer as an environment variable.
    """
    known = [".".join(name) for name, _ in known_fields()]
    cutoff = 0.85
    if path[0] in Settings.model_fields:
        cutoff = 0.7
        known = [name for name in known if name.startswith(f"{path[0]}.")]
    near = difflib.get_close_matches(".".join(path), known, n=1, cutoff=cutoff)
    if near:
        return f"; did you mean {env_name(near[0]) if from_environ else near[0]}?"
    if path[0] in Settings.model_fields:
        return f"; [{path[0]}] has {', '.join(name.partition('.')[2] for name in known)}"
    same_key = [name for name in known if name.endswith(f".{path[-1]}")]
    if same_key:
        return f"; did you mean {' or '.join(same_key)}?"
    sections = difflib.get_close_matches(path[0], list(Settings.model_fields), n=1, cutoff=0.7)
    return f"; did you mean the section [{sections[0]}]?" if sections else ""


def env_name(setting: str) -> str:
    """Return the environment variable of a setting such as "model.name"."""
    return ENV_PREFIX + setting.upper().replace(".", ENV_SEPARATOR)


def default_of(field: FieldInfo) -> Any:  # noqa: ANN401 - any setting
    """Return the default of a setting."""
    return field.get_default(call_default_factory=True, validated_data={})
