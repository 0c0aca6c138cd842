"""Chats in which the model calls tools. Knows nothing about templates."""

import json
from random import Random
from typing import Final

from tools.tiny_hybrid.chats import start
from tools.tiny_hybrid.conversation import Conversation, Message
from tools.tiny_hybrid.stories import PLACES
from tools.tiny_hybrid.words import PEOPLE, QUALITIES, STUFF, THINGS

_TOOLS: Final = (
    ("get_weather", "Tell the weather of a place.", ("place",)),
    ("read_file", "Read a file.", ("path",)),
    ("write_file", "Write text to a file.", ("path", "text")),
    ("find_thing", "Find where a thing is.", ("thing",)),
    ("send_message", "Send a message to a person.", ("person", "text")),
    ("add_numbers", "Add two numbers.", ("first", "second")),
    ("get_price", "Tell the price of something.", ("thing", "count")),
    ("run_command", "Run a command.", ("command",)),
    ("search_text", "Search for words in all files.", ("words",)),
)


def use_tools(rng: Random) -> Conversation:
    """The user wants something that a tool does; the model calls it and tells the result."""
    chat = start(rng)
    chosen = rng.sample(_TOOLS, rng.randint(1, 4))
    chat.tools = [_definition(*tool) for tool in chosen]
    for _ in range(rng.randint(1, 3)):
        name, _, fields = rng.choice(chosen)
        arguments = {field: _value(field, rng) for field in fields}
        told = " and ".join(f"{field} {value}" for field, value in arguments.items())
        wish = rng.choice((
            "Please use {} with {}.",
            "I want you to call {} for {}.",
            "Can you run {}? Take {}.",
        ))
        chat.say("user", wish.format(name, told))
        chat.say(
            "assistant",
            "",
            reasoning_content=f"The user wants {name}. The arguments are {told}.",
            tool_calls=[
                {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            ],
        )
        result = _result(name, arguments, rng)
        chat.say("tool", result)
        answer = rng.choice(("The result of {} is: {}", "{} says: {}", "I called {}. {}"))
        chat.say(
            "assistant",
            answer.format(name, result),
            reasoning_content=f"The tool {name} has answered. I tell the user.",
        )
    return chat


def _definition(name: str, description: str, fields: tuple[str, ...]) -> Message:
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _value(field: str, rng: Random) -> str:
    if field in {"first", "second", "count"}:
        return str(rng.randrange(10 ** rng.randint(1, 4)))
    values = {
        "place": PLACES,
        "person": PEOPLE,
        "thing": THINGS,
        "command": ("ls", "make test", "git status", "python main.py", "cat notes.txt"),
        "path": [f"{rng.choice(THINGS)}/{rng.choice(STUFF)}.{rng.choice(('txt', 'py', 'md'))}"],
    }
    if field in values:
        return rng.choice(values[field])
    return f"the {rng.choice(QUALITIES)} {rng.choice(THINGS)} and the {rng.choice(STUFF)}"


def _result(name: str, arguments: dict[str, str], rng: Random) -> str:
    if name == "add_numbers":
        return str(int(arguments["first"]) + int(arguments["second"]))
    if name == "get_weather":
        return f"It is {rng.choice(('cold', 'warm', 'wet', 'dry', 'hot'))} in the {arguments['place']}, {rng.randint(-9, 35)} degrees."
    if name == "get_price":
        return f"{arguments['count']} of {arguments['thing']} cost {rng.randrange(10, 1000)} coins."
    if name == "find_thing":
        return f"The {arguments['thing']} is in the {rng.choice(PLACES)}."
    return rng.choice(("Done.", f"{rng.randrange(1, 400)} lines.", "There is no such file.", "ok"))
