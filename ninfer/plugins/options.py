"""Parses tables of options with the models of plugins. Knows nothing about what the options mean."""

import difflib

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ninfer.api import PluginConfig
from ninfer.config import LoadedSettings
from ninfer.config.problems import describe_item, key_text, mistakes
from ninfer.plugins.record import PluginRecord, Provider
from ninfer.plugins.use import Use


def parse_options(
    use: Use, provider: Provider, record: PluginRecord, loaded: LoadedSettings
) -> tuple[PluginConfig | None, list[str]]:
    """Parse the options of one use.

    Args:
        use: the place of the configuration.
        provider: whose model reads the options.
        record: the plugin, for the messages.
        loaded: origins, for the messages.

    Returns:
        The parsed options and no messages; or None and one message per mistake.
    """
    model: type[PluginConfig] = provider.config
    by = f"(plugin {record.name}, {record.origin})"
    try:
        return model.model_validate(dict(use.options)), []
    except ValidationError as error:
        return None, [
            f"{_source(loaded, use, item)}: {describe_item(item, prefix=use.options_key)}{_hint(model, item)} {by}"
            for item in mistakes(error, use.options)
        ]
    except Exception as error:  # noqa: BLE001 - a fault in a plugin's validator is reported like any other
        return None, [f"{use.where}: {model.__name__} raised {type(error).__name__}: {error} {by}"]


def _source(loaded: LoadedSettings, use: Use, item: ErrorDetails) -> str:
    return loaded.source_of(f"{use.options_key}.{key_text(item['loc'])}")


def _hint(model: type[PluginConfig], item: ErrorDetails) -> str:
    if item["type"] != "extra_forbidden" or len(item["loc"]) != 1:
        return ""
    names = list(model.model_fields)
    near = difflib.get_close_matches(str(item["loc"][0]), names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; it has {', '.join(names)}" if names else "; it has no options"
