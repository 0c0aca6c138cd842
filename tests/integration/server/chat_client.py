"""What tests of chat do again and again: join a stream, look at the prompt."""

from tests.integration.server.conftest import events_of


def streamed(live, content="hi", **fields):
    """Return the joined deltas of each choice, the finish reasons, and the events."""
    events = events_of(live.chat(content, stream=True, **fields))
    assert events[-1] == "[DONE]"
    choices: dict[int, dict] = {}
    for event in events[:-1]:
        for choice in event["choices"]:
            whole = choices.setdefault(
                choice["index"],
                {"content": "", "reasoning_content": "", "calls": {}, "finish_reason": None},
            )
            delta = choice["delta"]
            assert whole["finish_reason"] is None, "nothing follows the finish reason"
            whole["content"] += delta.get("content") or ""
            whole["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] not in whole["calls"]:
                    assert call["id"]
                    assert call["type"] == "function"
                    whole["calls"][call["index"]] = {"id": call["id"], **call["function"]}
                else:
                    assert set(call) == {"index", "function"}
                    assert set(call["function"]) == {"arguments"}
                    whole["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            whole["finish_reason"] = choice["finish_reason"]
    return choices, events[:-1]


def history(*messages):
    return {"messages": [*messages, {"role": "user", "content": "next"}]}


def prompt_of(live, body):
    response = live.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return live.served.text.decode(live.engine.submitted[-1].prompt_token_ids)


def check_error(response, status: int, param: str | None, code: str | None = None) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["param"] == param
    assert isinstance(error["type"], str)
    if code is not None:
        assert error["code"] == code
    return error
