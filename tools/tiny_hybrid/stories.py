"""Small stories with people, places, things and numbers that come back. Knows nothing about chats."""

from dataclasses import dataclass
from random import Random
from typing import Final

from tools.tiny_hybrid.words import (
    ANIMALS,
    MANNERS,
    PEOPLE,
    QUALITIES,
    STUFF,
    THINGS,
    article,
    listed,
)

PLACES: Final = listed(
    "market village river mountain valley forest field meadow island beach harbour castle church school office kitchen "
    "cellar attic station lake pond farm barn mill shop library museum hotel square park tunnel cave garden bridge tower"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a story is about; every sentence speaks of these."""

    hero: str
    friend: str
    animal: str
    thing: str
    quality: str
    stuff: str
    place: str
    other_place: str
    count: int

    @classmethod
    def draw(cls, rng: Random) -> "Facts":
        """Choose all facts at random."""
        hero, friend = rng.sample(PEOPLE, 2)
        place, other_place = rng.sample(PLACES, 2)
        return cls(
            hero=hero,
            friend=friend,
            animal=rng.choice(ANIMALS),
            thing=rng.choice(THINGS),
            quality=rng.choice(QUALITIES),
            stuff=rng.choice(STUFF),
            place=place,
            other_place=other_place,
            count=rng.choice((2, 3, 4, 5, 6, 7, 8, 9, 12, 20, 36, 48, 75, 100, 240)),
        )


OPENINGS: Final = (
    "{hero} lived near the {place} with {a_animal} and {a_quality} {thing}.",
    "One morning {hero} went to the {place} to look for the {quality} {thing}.",
    "There was once {a_quality} {thing} in the {place}, and it belonged to {hero}.",
    "{hero} and {friend} met at the {place} every day.",
    "Every evening {hero} walked from the {place} to the {other_place} with the {animal}.",
    "In the old {place} there lived {a_animal}, and {hero} was its friend.",
)
MIDDLES: Final = (
    "{hero} had {count} pieces of {stuff} and gave some of them to {friend}.",
    "The {animal} did not like the {thing}, so it ran to the {other_place}.",
    '"Where is the {quality} {thing}?" asked {friend}.',
    '"I left it at the {other_place}," said {hero}.',
    "{friend} laughed and said that the {thing} was too {quality}.",
    "It began to rain, and the {stuff} in the {place} became wet.",
    "{hero} counted to {count} and then opened the door.",
    "The {animal} was hungry, so {friend} gave it some {stuff}.",
    "They walked {manner} to the {other_place} and found the {thing} there.",
    "Nobody in the {place} had ever seen {a_quality} {thing} before.",
    "{friend} wanted to buy the {thing} for {count} coins.",
    '"You can have it for {count} coins," said {hero} {manner}.',
    "The {thing} fell into the water, but the {animal} brought it back.",
    "Then {hero} put the {thing} next to the {stuff} and waited.",
    "On the way to the {other_place} they lost the {stuff}.",
    "{hero} asked {friend} for help, and {friend} came at once.",
    "After that, the {animal} slept {manner} in the {place}.",
    "The people of the {place} talked about the {thing} for {count} days.",
)
CLOSINGS: Final = (
    "In the end {hero} kept the {thing}, and {friend} was happy.",
    "So {hero} and {friend} went home with the {animal}.",
    "From that day on the {thing} stayed in the {other_place}.",
    "And that is how {hero} found the {quality} {thing}.",
    "{friend} thanked {hero}, and they ate the {stuff} together.",
)
QUESTIONS: Final = (
    ("Who went with {hero}?", "{friend} went with {hero}."),
    ("Which animal was in the story?", "It was {a_animal}."),
    ("What did {hero} have?", "{hero} had the {quality} {thing}."),
    ("How many pieces of {stuff} were there?", "There were {count} pieces of {stuff}."),
    ("Where did {hero} live?", "{hero} lived near the {place}."),
    ("What was the {thing} like?", "The {thing} was {quality}."),
    ("Where was the {thing} in the end?", "It was in the {other_place}."),
)


def fill(pattern: str, facts: Facts, rng: Random) -> str:
    """Put facts into a sentence."""
    return pattern.format(
        hero=facts.hero,
        friend=facts.friend,
        animal=facts.animal,
        a_animal=f"{article(facts.animal)} {facts.animal}",
        thing=facts.thing,
        quality=facts.quality,
        a_quality=f"{article(facts.quality)} {facts.quality}",
        stuff=facts.stuff,
        place=facts.place,
        other_place=facts.other_place,
        count=facts.count,
        manner=rng.choice(MANNERS[:22]),
    )


def story(facts: Facts, rng: Random, *, num_sentences: int) -> str:
    """Tell a story: an opening, num_sentences sentences in paragraphs, a closing."""
    sentences = [fill(rng.choice(OPENINGS), facts, rng)]
    left: list[str] = []
    for _ in range(num_sentences):
        if not left:
            left = rng.sample(MIDDLES, len(MIDDLES))
        sentences.append(fill(left.pop(), facts, rng))
    sentences.append(fill(rng.choice(CLOSINGS), facts, rng))
    text = sentences[0]
    for sentence in sentences[1:]:
        text += ("\n\n" if rng.random() < 0.12 else " ") + sentence
    return text
