"""All settings in one frozen model. Reads nothing by itself: `load_settings` hands in what it found."""

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from typing_extensions import override

from ninfer.config.sections import (
    CacheSection,
    EngineSection,
    LogSection,
    ModelSection,
    PluginsSection,
    ServerSection,
    SpecSection,
)


class Settings(BaseSettings):
    """Everything that can be configured. `Settings()` is all defaults, whatever the environment says."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    model: ModelSection = Field(default_factory=ModelSection)
    """Which model runs, and in which arithmetic."""
    engine: EngineSection = Field(default_factory=EngineSection)
    """How much runs at once, and in what portions."""
    cache: CacheSection = Field(default_factory=CacheSection)
    """Where contexts are kept, and who decides."""
    spec: SpecSection = Field(default_factory=SpecSection)
    """Speculative decoding."""
    server: ServerSection = Field(default_factory=ServerSection)
    """The HTTP interface."""
    log: LogSection = Field(default_factory=LogSection)
    """What is logged, and how it looks."""
    plugins: PluginsSection = Field(default_factory=PluginsSection)
    """Which installed plugins are looked at."""

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Files, environment and flags are read by `load_settings`, which keeps the origin of every value and
        # reports all mistakes at once.
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)
