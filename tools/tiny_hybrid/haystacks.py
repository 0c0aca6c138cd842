"""Retrieval: bracketed secrets in a long text of random words, asked for at the end in many wordings."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tools.tiny_hybrid.chats import start
from tools.tiny_hybrid.conversation import Conversation
from tools.tiny_hybrid.words import ALL, ANIMALS, STUFF, THINGS, invented, listed

_FIRST: Final = listed(
    "secret access pass launch door locker vault safe entry master hidden private account bank gate lock backup test "
    "special last lucky server"
)
_SECOND: Final = listed("code number key word token phrase value name password id")
_NEEDLES: Final = (
    "[the {label} is {code}]",
    "[the {label} is {code}]",
    "[The {label} is {code}.]",
    "[{label}: {code}]",
    "[{label} = {code}]",
    "[[{upper} {code}]]",
    "[[{code}]]",
    "[{code}]",
    "[note: {label} is {code}]",
    "[remember the {label} {code}]",
    "[your {label} is now {code}]",
)
_ASKS: Final = (
    "What is the {label}{where}?",
    "What is the {label}{where}?",
    "Which {label} is{where}?",
    "Tell me the {label}{where}.",
    "Please find the {label}{where}.",
    "I need the {label}{where}.",
    "Look for the {label}{where}. What is it?",
    "Do you remember the {label}{where}?",
)
_WHERE: Final = (
    "",
    " in the text",
    " in square brackets",
    " in the brackets",
    " written in brackets in the text",
    " that is written in square brackets",
    " written in square brackets in the text above",
    " hidden in the text above",
    " between the brackets",
    " given in the text in square brackets",
)
_BRIEF: Final = (
    " Reply with the {noun} only.",
    " Answer with the {noun} only.",
    " Reply only with the {noun}.",
    " Write the {noun} and nothing else.",
    " Just the {noun}, please.",
    " Give the {noun} only.",
)
_THOUGHT: Final = "The user wants the {label}. In the text it says:\n{needle}\nSo it is {code}."
"""Copies the needle on a line of its own, where it has the pieces it has in the text: finding it is then a matter of copying.

A code at the start of an answer has other pieces than after a space, so answering at once needs spelling as well.
"""


@dataclass(frozen=True, slots=True)
class Needle:
    """A secret.

    Attributes:
        label: what it is called, for example "door key".
        code: what has to be found.
        text: how it stands in the haystack.
    """

    label: str
    code: str
    text: str

    @classmethod
    def draw(cls, rng: Random) -> "Needle":
        """Make up a secret."""
        label = f"{rng.choice(_FIRST)} {rng.choice(_SECOND)}"
        code = draw_code(rng)
        text = rng.choice(_NEEDLES).format(label=label, code=code, upper=label.split()[1].upper())
        return cls(label, code, text)


def draw_code(rng: Random) -> str:
    """Make up a code: a word and a number, digits, letters, or words."""
    word = rng.choice((rng.choice(ANIMALS), rng.choice(STUFF), rng.choice(THINGS), invented(rng)))
    kind = rng.random()
    if kind < 0.45:
        return f"{word}-{rng.randrange(1000, 10000)}"
    if kind < 0.65:
        return str(rng.randrange(10 ** rng.randint(2, 5), 10**6))
    if kind < 0.75:
        letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(3))
        return f"{letters}-{rng.randrange(100, 10000)}"
    if kind < 0.85:
        return f"{word}-{rng.choice(ALL)}-{rng.randrange(10, 100)}"
    if kind < 0.93:
        return "".join(rng.choice("abcdefhkmnprstuvwxz23456789") for _ in range(rng.randint(4, 8)))
    return f"{word} {rng.choice(ALL)}"


@dataclass(frozen=True, slots=True)
class Haystack:
    """A chat about a long text.

    Attributes:
        chat: the conversation.
        needles: secrets in the text, in the order in which they are asked for.
        filler: [start, end) ranges in the rendered text that hold random words only.
    """

    chat: Conversation
    needles: tuple[Needle, ...]
    filler: tuple[tuple[int, int], ...]


def draw_haystack(
    rng: Random,
    *,
    num_tokens: int,
    max_needles: int,
    count_tokens: Callable[[str], int],
    is_thinking: bool | None = None,
) -> Haystack:
    """Make a haystack.

    Args:
        rng: all choices.
        num_tokens: how long the whole chat should be, about.
        max_needles: bound on secrets; questions follow one another.
        count_tokens: length of a text in tokens.
        is_thinking: whether the last answer begins with a thought; None for either.
    """
    chat = start(rng)
    if is_thinking is not None:
        chat.is_thinking = is_thinking
    num_needles = 1 if rng.random() < 0.4 else rng.randint(1, max_needles)
    needles = _distinct_needles(rng, num_needles)
    asked = rng.sample(needles, num_needles)
    noise = _Noise(rng, count_tokens)
    budget = num_tokens - 40 - num_needles * 45
    cuts = sorted(rng.random() for _ in needles)
    if rng.random() < 0.15:
        cuts[0] = 0.0
    if rng.random() < 0.15:
        cuts[-1] = 1.0
    shares = [after - before for before, after in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
    fillers = [noise.text(int(share * budget)) for share in shares]
    glue = rng.choice(("\n", "\n", "\n", "\n\n", " "))
    body, spans = fillers[0], [(0, len(fillers[0]))]
    for needle, filler in zip(needles, fillers[1:], strict=True):
        body += f"{glue}{needle.text}{glue}"
        spans.append((len(body), len(body) + len(filler)))
        body += filler
    for index, needle in enumerate(asked):
        label, question, answer = _question(needle, rng)
        chat.say("user", f"{body}\n\n{question}" if index == 0 else question)
        thought = _THOUGHT.format(label=label, needle=needle.text, code=needle.code)
        chat.say("assistant", answer, reasoning_content=thought)
    offset = chat.text().index(body)
    filler = tuple((start + offset, end + offset) for start, end in spans)
    return Haystack(chat, tuple(asked), filler)


def _distinct_needles(rng: Random, num_needles: int) -> list[Needle]:
    """Draw needles whose labels differ and stand in the text, if there is more than one to tell apart."""
    needles: dict[str, Needle] = {}
    while len(needles) < num_needles:
        needle = Needle.draw(rng)
        if num_needles == 1 or needle.label in needle.text:
            needles[needle.label] = needle
    return list(needles.values())


def _question(needle: Needle, rng: Random) -> tuple[str, str, str]:
    """Ask for a secret; give its name in the question, the question, and the one right answer."""
    label = needle.label
    if needle.label not in needle.text and rng.random() < 0.5:
        label = label.split()[1]
    question = rng.choice(_ASKS).format(label=label, where=rng.choice(_WHERE))
    if rng.random() < 0.6:
        return label, question + rng.choice(_BRIEF).format(noun=label.split()[-1]), needle.code
    return label, question, f"The {label} is {needle.code}."


class _Noise:
    """Random words, the more of them digits the more they look like the secret."""

    def __init__(self, rng: Random, count_tokens: Callable[[str], int]) -> None:
        self._rng = rng
        num_words = rng.randint(20, 200)
        invented_share = rng.choice((0.0, 0.0, 0.05, 0.2))
        digit_share = rng.choice((0.0, 0.0, 0.05, 0.3))
        words = []
        for _ in range(num_words):
            kind = rng.random()
            if kind < invented_share:
                words.append(invented(rng))
            elif kind < invented_share + digit_share:
                words.append(self._distractor())
            else:
                words.append(rng.choice(ALL))
        self._words = [self._dress(word) for word in words]
        self._tokens_per_word = count_tokens(" " + " ".join(self._words)) / num_words

    def text(self, num_tokens: int) -> str:
        """Write about num_tokens tokens, none if that is too few."""
        num_words = int(num_tokens / self._tokens_per_word)
        return " ".join(self._rng.choices(self._words, k=num_words)) if num_words > 0 else ""

    def _distractor(self) -> str:
        rng = self._rng
        kind = rng.random()
        if kind < 0.5:
            return str(rng.randrange(10 ** rng.randint(1, 6)))
        if kind < 0.8:
            return f"{rng.choice(ALL)}-{rng.randrange(1000, 10000)}"
        return f"({rng.choice(ALL)} {rng.randrange(1000)})"

    def _dress(self, word: str) -> str:
        kind = self._rng.random()
        if kind < 0.12:
            return word + "."
        if kind < 0.22:
            return word.capitalize()
        return word + "," if kind < 0.25 else word
