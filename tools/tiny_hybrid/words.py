"""The words that the text is made of. Knows nothing about sentences."""

from random import Random
from typing import Final


def listed(text: str) -> tuple[str, ...]:
    """Split a text into words."""
    return tuple(text.split())


PEOPLE: Final = listed("""
Ada Ben Cora Dan Ella Finn Grace Hugo Ida Jonas Kira Leo Mara Nils Olga Paul Quinn Rosa Sam Tara Ugo Vera Will Xenia
Yara Zoe Anna Bruno Clara David Emma Felix Greta Henry Iris Jack Karl Lena Max Nora Oscar Petra Ruth Simon Tom Uma
Victor Wanda Alice Bob
""")

ANIMALS: Final = listed("""
dog cat fox horse cow sheep goat hen duck goose mouse rabbit bear wolf deer owl crow robin sparrow eagle hawk heron
swan frog toad snake turtle otter beaver badger squirrel hedgehog pony donkey pig lamb bee ant spider fish trout salmon
whale seal crab lion tiger zebra camel monkey parrot falcon raven magpie puffin lizard moth beetle cricket octopus plover wombat
kestrel
""")

THINGS: Final = listed("""
apple bag ball basket bell blanket boat book bottle bowl box bread bridge broom brush bucket button cake candle cap car
card cart chair clock coat coin cup desk door dress drum envelope fence flag flute garden gate glass glove hammer hat
house jacket jar jewel jug key kite knife ladder lamp lantern letter map mirror needle net oven paper pen pencil piano
picture pillow pipe plate pot quilt radio ring rope saddle scarf ship shirt shoe shovel sock spoon stamp stone string
table tent thread ticket tool tower toy train tree umbrella vase violin wagon wall watch wheel whistle window wire brick
buckle barrel engine ladle marble ribbon sphinx wizard prize liquor quartz rhythm market village river mountain valley
forest field meadow island beach harbour castle church school office kitchen cellar attic station road street lane hill
lake pond sea shore city town farm barn mill mine shop library museum hotel court square park path tunnel cave desert thimble
""")

STUFF: Final = listed("""
water milk tea coffee honey sugar salt butter cheese soup rice corn wheat flour wood iron copper silver gold tin zinc lead
steel glass clay sand snow ice rain wind fire smoke dust wool silk cotton leather paint ink oil wax coal music light
shadow silence luck hope time money news work sleep advice bread jam meat fruit pepper garlic velvet ivory amber zirconium
""")

QUALITIES: Final = listed("""
small large big little old new young long short tall deep wide narrow thick thin heavy light fast quick slow warm cold hot
cool wet dry soft hard sharp dull bright dark pale red blue green yellow brown black white grey orange purple pink round
flat square empty full clean dirty rich poor kind cruel brave shy proud humble happy sad angry calm quiet loud strange
common rare simple plain fine rough smooth sweet sour bitter fresh rotten lazy busy clever silly wise foolish strong weak
early late open closed broken whole dizzy funky cozy daft vexing careful careless gentle fierce hungry tired lonely famous
secret hidden lost second last first next good bad better best worse great nice lovely ugly ready safe free
""")

MANNERS: Final = listed("""
quickly slowly softly loudly gladly sadly calmly bravely gently firmly kindly rarely often always never sometimes soon
later again once twice together alone quietly carefully suddenly finally nearly hardly really simply amazingly promptly
easily happily almost already still yet today tomorrow yesterday everywhere nowhere outside inside upstairs
""")

DOINGS: Final = listed("""
find lose carry bring take give sell buy make break mend clean paint open close lift drop push pull throw catch hold hide
keep leave watch see hear smell touch love hate want need like know remember forget count measure weigh draw write read
show send fetch wash cook eat drink pack fill empty build burn cut tie wrap judge visit follow lead call thank help meet
teach ask answer jump run walk swim fly climb fall sit stand sleep wake sing dance laugh cry wait work play rest travel
return begin stop turn move stay live grow shine ring swing wave guard borrow choose collect cover cross decide deliver
describe discover drive enter explain fix guess hurry imagine join knock land listen mix notice offer order pass pick plan
plant point pour prepare promise protect provide reach receive repair reply rescue ride rush save search share shout sign
smile solve sort spend spill spread start steal stir study taste test trust try understand use wander warn wear whisper
win wish wonder worry
""")

SMALL: Final = listed("""
the a an and or but of in on at to from with by for as is was are were be been has have had do does did will would can
could should may might must not no yes if then than when while where what which who whom whose how why that this these
those it its he she they we you I me him her them us my your his our their one two three four five six seven eight nine
ten eleven twelve dozen hundred thousand some any each every all both few many much more most other another such only own
same so too very just also over under above below between before after since until about against into through during
without within along across behind beyond near up down out off here there now because although however therefore perhaps
""")

GENERAL: Final = listed("""
able account action age air amount answer area arm army art attack back bank base basic battle beauty bed belief bill
birth bit blood body bone bottom brain branch breath brother building business camp capital captain care case cause
center century chance change chapter charge chest chief child choice circle claim class clear cloth cloud club coast
color company computer condition control copy corner cost country couple course cream crime crowd current curve danger data
date daughter day death debt degree design detail device difference dinner direction distance doctor dollar dream
duty earth east edge education effect egg end enemy energy error evening event example exchange eye face fact family
father fear feeling figure file film final finger floor flower food foot force form fortune forward friend front future
game gas general girl goal government grass ground group guard guest gun hair half hand head health heart heat height
history hole holiday home honor hour human hundred hunt husband idea industry inside instance interest issue job joke
joy judge king knee knowledge labor lady language law leader leaf league leg length lesson level library life limit line
list loss machine mail man manner mark marriage master match material matter meal meaning member memory message metal
method middle mile mind minute model modern moment month moon morning mother motion mouth murder muscle name nation nature
neck neighbor network night noise north nose note notice number object ocean opinion opposite opponent page pain pair part
party past patient pattern peace people period person phone piece pilot place plane planet player pleasure pocket poem
police pool position post pound power practice present president press price problem process product program project proof
public purpose quality quarter queen question race rate reason record region relation report result rise rock role roof
room root row rule sale sample scale scene science score screen season seat section sense series service set shade shape
shelter sheet side sight signal silver sister size skill skin sky smell soil soldier solution son song sound source south
space speech speed spirit sport spot spring staff stage star state step stick stock store storm story strategy stream
strength structure student style subject success suit summer sun supply support surface surprise sweet symbol system
talk target task taste tax teacher team temperature term test theory thing thought throat tide title tone tongue tooth
top total touch trade tradition travel trial trick trip trouble truck truth type uncle union unit value vessel victory view
visitor voice vote voyage wage war waste wave way weapon weather wedding week weight west wheel wife wild wine wing winter
woman word world writer yard year youth zero code token server cache prompt model state page memory query vector index
function return value string number list table error input output user system assistant file path name read write
boxing jazz fans black quiz gym vow wax jaw gloved mad shot bring five brown liver antique
""")
MODERN: Final = listed("""
conversation context session compute device request response continue document component information different important
possible question another between together something anything everything nothing someone everyone without understand
memory storage capture layer attention weight tensor train training learn sample random search retrieve speculative draft
verify accept reject decode prefill chunk batch stream client connect connection message package install version command
option setting config configuration default parameter argument variable module class method object instance import
library test tests check error warning failure success result report measure seconds minutes hours bytes tokens pages
limit bound capacity size length count amount average maximum minimum total percent ratio budget cost price policy
manage manager schedule scheduler worker thread process operate operation transfer restore release reserve reservation
lease owner evict eviction persistent temporary permanent available required necessary sufficient equal identical exactly
explain example describe definition reason cause effect consider suppose conclude conclusion proof prove strategy analysis
approach insight sentence paragraph original similar various several particular certain special standard usual regular
according instead whether either neither rather quite enough please welcome sorry thanks morning afternoon language
computer internet website email phone number address country government public national political economic social
education university student research science technology industry company business development production management
community environment quality control support service security health medical treatment hospital disease animal plant
begin began begun went gone came saw seen made took taken gave given found said told thought knew known felt left kept
held brought bought sold lost won met ran sat stood wrote written read heard spoke spoken broke broken chose chosen drew
grew grown flew fell built sent spent slept woke ate drank sang swam
""")

ALL: Final = tuple(
    dict.fromkeys(
        PEOPLE + ANIMALS + THINGS + STUFF + QUALITIES + MANNERS + DOINGS + SMALL + GENERAL + MODERN
    )
)
"""Every word once, in a fixed order."""

_ONSETS: Final = listed(
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sc sh sk sl sm sn sp st str sw t th tr tw v w wh z"
)
_VOWELS: Final = listed("a e i o u ai ea ee ie oa oo ou y")
_CODAS: Final = listed("b ck d ff g l ll m mp n nd ng nk nt p r rd rk rn s sh sk ss st t th x zz")
_ENDINGS: Final = (
    "",
    "",
    "",
    "",
    "er",
    "ing",
    "ed",
    "s",
    "ly",
    "ium",
    "el",
    "et",
    "ques",
    "ness",
    "le",
    "on",
    "ite",
)


def invented(rng: Random) -> str:
    """Make up a word that sounds like English, so that no list of words is learned by heart."""
    parts = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        parts.append(rng.choice(_ONSETS) + rng.choice(_VOWELS))
        if rng.random() < 0.6:
            parts.append(rng.choice(_CODAS))
    return "".join(parts) + rng.choice(_ENDINGS)


def inflected(word: str) -> tuple[str, ...]:
    """Give forms that the word could have, right or wrong: good enough for a tokenizer."""
    stem = word[:-1] if word.endswith("e") else word
    return f"{word}s", f"{stem}ing", f"{stem}ed", f"{stem}er"


def article(word: str) -> str:
    """Choose "a" or "an" by the first letter."""
    return "an" if word[0] in "aeiou" else "a"
