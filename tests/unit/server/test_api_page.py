"""docs/api.md names every field, endpoint and error code."""

import re
from pathlib import Path

import pytest

from ninfer.api.errors import NinferError
from ninfer.server.chat.schema import ChatRequest
from ninfer.server.completions.schema import CompletionRequest
from ninfer.server.tokens.schema import DetokenizeRequest, TokenizeRequest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
BODIES = [ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest]


@pytest.mark.parametrize("body", BODIES)
def test_every_field_is_documented(body):
    assert [name for name in body.model_fields if not re.search(rf"`{name}[`.]", PAGE)] == []


@pytest.mark.parametrize("body", BODIES[:2])
def test_every_refused_field_is_documented(body):
    refused = PAGE.partition("## Refused fields")[2]
    assert [name for name in body.unsupported_fields() if f"`{name}`" not in refused] == []


def test_no_other_field_is_said_to_be_refused():
    refused = PAGE.partition("## Refused fields")[2]
    first_columns = [
        line.split("|")[1] for line in refused.splitlines() if line.startswith("| ") and "`" in line
    ]
    named = {name for column in first_columns for name in re.findall(r"`(\w+)`", column)}
    known = {*ChatRequest.unsupported_fields(), *CompletionRequest.unsupported_fields()}
    assert named == known


def test_every_error_code_of_the_server_is_documented():
    def subclasses(kind):
        return [kind, *(sub for child in kind.__subclasses__() for sub in subclasses(child))]

    modules = ("ninfer.server.errors", "ninfer.server.body", "ninfer.core.errors")
    codes = {kind.code for kind in subclasses(NinferError) if kind.__module__ in modules}
    codes -= {"client_disconnected"}
    assert [code for code in sorted(codes) if f"`{code}`" not in PAGE] == []
