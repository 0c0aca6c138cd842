"""Settings of a Redis tier. Knows nothing about the protocol."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import ByteSize, Field, SecretStr, model_validator

from ninfer.api import PluginConfig


class RedisConfig(PluginConfig):
    """Settings of one tier of kind `redis`. Times are in seconds, sizes in bytes or like "64GiB"."""

    url: str = Field(
        default="redis://127.0.0.1:6379/0",
        pattern=r"^(redis|rediss|unix)://",
        description="where the server is: redis://host:port/db, rediss:// for TLS, unix:///path/to/socket?db=0",
    )
    username: str | None = Field(default=None, description="name to log in with")
    password: SecretStr | None = Field(default=None, description="password to log in with")
    password_file: Path | None = Field(
        default=None, description="file whose first line is the password; instead of password"
    )
    tls_ca_file: Path | None = Field(
        default=None, description="certificates to trust with rediss://; the system's if not given"
    )
    tls_cert_file: Path | None = Field(default=None, description="own certificate, PEM")
    tls_key_file: Path | None = Field(default=None, description="key of the own certificate, PEM")
    tls_verify: bool = Field(
        default=True, description="check certificate and host name of the server"
    )
    prefix: str = Field(
        default="ninfer",
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="first part of every key; servers that share contexts use the same",
    )
    capacity: Annotated[ByteSize, Field(ge=64 << 10)] = Field(
        default=ByteSize(16 << 30),
        description="cap over all images of one model below the prefix, whoever stored them",
    )
    connect_timeout_s: float = Field(
        default=2.0, gt=0, le=60, description="longest wait for a connection, seconds"
    )
    timeout_s: float = Field(
        default=4.0, gt=0, le=60, description="longest wait for bytes from the server, seconds"
    )
    max_backoff_s: float = Field(
        default=5.0,
        gt=0,
        le=300,
        description="longest pause between attempts to reach a server that does not answer, seconds",
    )
    batch: Annotated[ByteSize, Field(ge=1 << 20)] = Field(
        default=ByteSize(32 << 20), description="payload bytes sent or asked for in one round trip"
    )
    own_server: Path | None = Field(
        default=None,
        description="for trials and tests: folder of a private redis-server that the tier starts and ends; "
        "url is not used then",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.password is not None and self.password_file is not None:
            msg = "give password or password_file, not both"
            raise ValueError(msg)
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            msg = "tls_cert_file and tls_key_file go together"
            raise ValueError(msg)
        has_tls = self.tls_ca_file is not None or self.tls_cert_file is not None
        if (has_tls or not self.tls_verify) and not self.url.startswith("rediss://"):
            msg = "the settings tls_... need a url that begins with rediss://"
            raise ValueError(msg)
        return self

    @classmethod
    def sample(cls, root: Path) -> "RedisConfig":
        """Return a small configuration with a private server below `root`."""
        return cls(own_server=root / "redis", capacity=ByteSize(4 << 20))
