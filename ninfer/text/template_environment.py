"""The sandbox in which chat templates run. Knows nothing about messages.

Templates come with model files and are code of strangers: no attribute of Python objects is in reach, nothing can
be changed. What is offered is what `transformers` offers
(https://huggingface.co/docs/transformers/chat_templating_writing).
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

from ninfer.api.clock import Clock


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks what the model wrote; the text inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    @override
    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def build_environment(clock: Clock) -> jinja2.Environment:
    """Make the sandbox.

    Args:
        clock: what `strftime_now` reads, in local time.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now(clock)
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the signature templates use
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Spell a value as JSON, without the HTML escapes of jinja2's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _strftime_now(clock: Clock) -> Callable[[str], str]:
    def strftime_now(layout: str) -> str:
        return datetime.fromtimestamp(clock.unix_s()).strftime(layout)

    return strftime_now
