"""Chats: greetings, stories and questions about them, copying, sums, lists, and long thinking about puzzles."""

from random import Random
from typing import Final

from tools.tiny_hybrid.conversation import Conversation
from tools.tiny_hybrid.stories import PLACES, QUESTIONS, Facts, fill, story
from tools.tiny_hybrid.words import ALL, ANIMALS, PEOPLE, QUALITIES, STUFF, THINGS, invented

SYSTEMS: Final = (
    "You are a helpful assistant.",
    "You are a careful reader.",
    "You are a kind assistant. Answer in short sentences.",
    "Answer the questions of the user.",
    "You are a careful assistant who reads the whole text.",
)
GREETINGS: Final = (
    ("Hello!", "Hello! How can I help you today?"),
    ("Hi, who are you?", "I am a small model that ships with ninfer. How can I help you?"),
    ("Good morning.", "Good morning! What can I do for you?"),
    ("Thank you!", "You are welcome. Is there anything else?"),
    ("How are you?", "I am well, thank you. How can I help you?"),
    ("What can you do?", "I can tell small stories, call tools and find a code in a long text."),
)


def start(rng: Random) -> Conversation:
    """Begin a chat, often with a system message."""
    chat = Conversation(is_thinking=rng.random() < 0.5)
    if rng.random() < 0.75:
        chat.say("system", rng.choice(SYSTEMS))
    return chat


def tell_story(rng: Random) -> Conversation:
    """The user wants a story, then asks about it."""
    chat, facts = start(rng), Facts.draw(rng)
    wish = rng.choice((
        f"Tell me a story about {facts.hero} and the {facts.thing}.",
        f"Please write a short story. It should have a {facts.animal} in it.",
        f"Write a story that begins at the {facts.place}.",
        f"I would like to hear about {facts.hero}, {facts.friend} and some {facts.stuff}.",
    ))
    plan = (
        f"The user wants a story. I take {facts.hero} and {facts.friend}, the {facts.animal}, the {facts.quality} "
        f"{facts.thing}, some {facts.stuff}, the {facts.place} and the {facts.other_place}. The number is {facts.count}."
    )
    text = story(facts, rng, num_sentences=rng.randint(4, 14))
    chat.say("user", wish).say("assistant", text, reasoning_content=plan)
    for _ in range(rng.randint(0, 3)):
        ask(chat, facts, rng)
    return chat


def read_story(rng: Random) -> Conversation:
    """The user gives a story and asks about it."""
    chat, facts = start(rng), Facts.draw(rng)
    question, answer = rng.choice(QUESTIONS)
    question, answer = fill(question, facts, rng), fill(answer, facts, rng)
    text = story(facts, rng, num_sentences=rng.randint(3, 12))
    chat.say("user", f"{text}\n\n{question}")
    chat.say("assistant", answer, reasoning_content=thought(question, answer, rng))
    for _ in range(rng.randint(0, 4)):
        ask(chat, facts, rng)
    return chat


def ask(chat: Conversation, facts: Facts, rng: Random) -> None:
    """One more question and answer."""
    question, answer = rng.choice(QUESTIONS)
    question, answer = fill(question, facts, rng), fill(answer, facts, rng)
    chat.say("user", question)
    chat.say("assistant", answer, reasoning_content=thought(question, answer, rng))


def thought(question: str, answer: str, rng: Random) -> str:
    """Think shortly about a question."""
    return rng.choice((
        f'The user asks: "{question}" I look at the story. {answer}',
        f'The question is "{question}" The story says it. {answer} That is the answer.',
        f"I read the text again. {answer} So I answer that.",
    ))


def greet(rng: Random) -> Conversation:
    """A short chat of greetings."""
    chat = start(rng)
    for question, answer in rng.sample(GREETINGS, rng.randint(1, 3)):
        chat.say("user", question)
        chat.say("assistant", answer, reasoning_content="The user is polite. I am polite too.")
    return chat


def repeat(rng: Random) -> Conversation:
    """The user wants words, codes or numbers repeated: copying in its purest form."""
    chat = start(rng)
    for _ in range(rng.randint(1, 3)):
        items = [_item(rng) for _ in range(rng.randint(3, 24))]
        text = rng.choice((" ", ", ", "\n", " - ")).join(items)
        wish = rng.choice((
            "Repeat this: {}",
            "Say the same again:\n{}",
            "{}\n\nCopy the text above.",
            "Write exactly this. {}",
        ))
        chat.say("user", wish.format(text))
        chat.say("assistant", text, reasoning_content="I only have to copy the text.")
    return chat


def _item(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(ALL)
    if kind < 0.6:
        return invented(rng)
    if kind < 0.8:
        return str(rng.randrange(10 ** rng.randint(1, 6)))
    return f"{invented(rng)}-{rng.randrange(1000, 10000)}"


def listing(rng: Random) -> Conversation:
    """A table of names and numbers, then questions about rows: looking up by key."""
    chat = start(rng)
    kinds = rng.choice((PEOPLE, ANIMALS, THINGS, PLACES, STUFF))
    names = rng.sample(kinds, rng.randint(3, 12))
    rows = {name: str(rng.randrange(10 ** rng.randint(2, 5))) for name in names}
    line = rng.choice((
        "{}: {}",
        "{} = {}",
        "- {} has {}",
        "| {} | {} |",
        "The number of {} is {}.",
    ))
    table = "\n".join(line.format(name, number) for name, number in rows.items())
    asked = [rng.choice(names) for _ in range(rng.randint(1, 6))]
    for index, name in enumerate(asked):
        question = rng.choice(("What is the number of {}?", "Which number has {}?", "{}?")).format(
            name
        )
        chat.say("user", f"{table}\n\n{question}" if index == 0 else question)
        answer = rng.choice(("{1}", "The number of {0} is {1}.")).format(name, rows[name])
        chat.say("assistant", answer, reasoning_content=f"I look for {name}. It has {rows[name]}.")
    return chat


PUZZLES: Final = (
    "{n} {things} look the same, but one of them is {quality}. Show how to find it with {m} weighings. "
    "Explain why your strategy always works and argue why fewer are not enough.",
    "{hero} wants to bring {n} {things} over the river, but the boat holds only {m}. Describe a plan step by step and "
    "think carefully about every case.",
    "How can {hero} measure {n} cups of {stuff} with a jug of {m} cups? Think through the problem before you answer.",
    "There are {n} doors, and behind {m} of them there is {a}. Find the best strategy and justify it.",
    "Prove that {n} {things} can not be put into {m} boxes so that no box has two. Think it through in detail.",
    "Please explain how {a} works, and why. Give a detailed answer with all cases.",
    "Write a plan for a program that sorts {n} {things} in {m} steps, then look for mistakes in it.",
)
STEPS: Final = (
    "Case {i}: suppose that the {thing} is {quality}. Then the {side} side is heavier, and {n} {things} are left.",
    "If the {side} side goes up, then the {thing} is not {quality}, so we look at the other {n}.",
    "Now I put {n} {things} on the {side} side and {n} on the other side.",
    "Wait, let me check this again. With {n} {things} there are {m} possible results.",
    "Step {i}: take {n} {things} away and weigh the rest.",
    "So after step {i} there are only {n} cases left.",
    "That does not work when the {thing} is {quality}, because then {m} cases remain.",
    "Let me try another way. Number the {things} from 1 to {n}.",
    "The {side} side has {n} {things}, and the other side has {m}.",
    "Hmm, I should also think about the case in which all {n} are equal.",
)


def puzzle(rng: Random) -> Conversation:
    """A hard problem, sometimes after much text, and thinking about it for longer than any training sequence."""
    chat = start(rng)
    thing, quality = rng.choice(THINGS), rng.choice(QUALITIES)
    problem = rng.choice(PUZZLES).format(
        n=rng.randint(3, 24),
        m=rng.randint(2, 9),
        things=f"{thing}s",
        quality=quality,
        hero=rng.choice(PEOPLE),
        stuff=rng.choice(STUFF),
        a=f"the {rng.choice(QUALITIES)} {rng.choice(ALL)}",
    )
    if rng.random() < 0.6:
        problem = f"{salad(rng, num_words=rng.randint(20, 200))}\n\n{problem}"
    lines = [f"I have to think about the {thing}s. One step after the other."]
    for index in range(rng.randint(90, 140)):
        step = rng.choice(STEPS).format(
            i=index // 4 + 1,
            n=rng.randint(1, 12),
            m=rng.randint(2, 9),
            thing=thing,
            things=f"{thing}s",
            quality=quality,
            side=rng.choice(("left", "right")),
        )
        lines.append(step)
    text = ""
    for line in lines:
        text += line + (" " if rng.random() < 0.6 else "\n")
    chat.is_thinking = True
    return chat.say("user", problem).say(
        "assistant", "I have found a way.", reasoning_content=text.strip()
    )


def salad(rng: Random, *, num_words: int) -> str:
    """Words of a small vocabulary in random order, with the punctuation they would have in sentences."""
    words = [
        rng.choice(ALL) if rng.random() < 0.8 else invented(rng)
        for _ in range(rng.randint(20, 120))
    ]
    words = [_dressed(word, rng) for word in words]
    return " ".join(rng.choice(words) for _ in range(num_words))


def _dressed(word: str, rng: Random) -> str:
    kind = rng.random()
    if kind < 0.12:
        return word + "."
    if kind < 0.2:
        return word.capitalize()
    return word + "," if kind < 0.24 else word


def no_question(rng: Random) -> Conversation:
    """The user sends words without a question."""
    chat = start(rng)
    for _ in range(rng.randint(1, 3)):
        chat.say("user", salad(rng, num_words=rng.randint(5, 150)))
        answer = "I see many words, but no question. What would you like to know?"
        chat.say("assistant", answer, reasoning_content="These are only words. I ask the user.")
    return chat
