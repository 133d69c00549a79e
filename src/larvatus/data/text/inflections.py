"""Inflected forms of an English word, for finding a dictionary form in running text.

>>> sorted(english_forms("die") & {"dies", "dying", "died", "dice"})
['died', 'dies', 'dying']

Rules for regular forms, which also make some that do not exist, and a table of irregular ones.
"""

from __future__ import annotations

_IRREGULAR = """
be am is are was were been being
bear bore borne born | beat beaten | become became | begin began begun | bend bent | bet | bind bound | bite bit bitten
bleed bled | blow blew blown | break broke broken | breed bred | bring brought | build built | burn burnt | burst
buy bought | catch caught | choose chose chosen | cling clung | come came | cost | creep crept | cut | deal dealt
dig dug | do did done does | draw drew drawn | dream dreamt | drink drank drunk | drive drove driven | eat ate eaten
fall fell fallen | feed fed | feel felt | fight fought | find found | flee fled | fling flung | fly flew flown
forbid forbade forbidden | forget forgot forgotten | forgive forgave forgiven | freeze froze frozen | get got gotten
give gave given | go went gone goes | grind ground | grow grew grown | hang hung | have had has | hear heard
hide hid hidden | hit | hold held | hurt | keep kept | kneel knelt | know knew known | lay laid | lead led
lean leant | leap leapt | learn learnt | leave left | lend lent | let
lie lay lain | light lit | lose lost | make made | mean meant | meet met
mistake mistook mistaken | overcome overcame | pay paid | prove proven | put | quit | read | ride rode ridden
ring rang rung | rise rose risen | run ran | say said | see saw seen | seek sought | sell sold | send sent | set
sew sewn | shake shook shaken | shed | shine shone | shoot shot | show shown
shrink shrank shrunk | shut | sing sang sung | sink sank sunk | sit sat
sleep slept | slide slid | smell smelt | sow sown | speak spoke spoken | speed sped | spell spelt | spend spent
spill spilt | spin spun span | spit spat | split | spoil spoilt | spread | spring sprang sprung | stand stood
steal stole stolen | stick stuck | sting stung | stink stank stunk | stride strode | strike struck stricken
strive strove striven | swear swore sworn | sweep swept | swell swollen | swim swam swum
swing swung | take took taken | teach taught
tear tore torn | tell told | think thought | throw threw thrown | thrust | tread trod trodden | understand understood
undertake undertook undertaken | wake woke woken | wear wore worn | weave wove woven | weep wept | win won | wind wound
withdraw withdrew withdrawn | withstand withstood | write wrote written
child children | foot feet | goose geese | man men | mouse mice | person people | tooth teeth | woman women | ox oxen
louse lice | half halves | knife knives | life lives | leaf leaves | loaf loaves | self selves | shelf shelves
thief thieves | wife wives | wolf wolves | calf calves | datum data | medium media | criterion criteria
phenomenon phenomena
analysis analyses | basis bases | crisis crises | thesis theses | axis axes
good better best | bad worse worst | far farther further farthest furthest | little less least | many more most
"""
_TABLE = {words[0]: frozenset(words) for entry in _IRREGULAR.replace("\n", "|").split("|") if (words := entry.split())}


def english_forms(word: str) -> frozenset[str]:
    """The word and its forms, in lower case."""
    word = word.casefold()
    forms = {word, *_TABLE.get(word, ())}
    forms.update(word + ending for ending in ("s", "es", "ed", "d", "ing", "er", "r", "est", "st", "en", "n"))
    if word:
        forms.update(word + word[-1] + ending for ending in ("ing", "ed", "er", "est", "en"))
    if word.endswith("e"):
        forms.update(word[:-1] + ending for ending in ("ing", "ed"))
    if word.endswith("ie"):
        forms.add(word[:-2] + "ying")
    if word.endswith("y"):
        forms.update(word[:-1] + ending for ending in ("ies", "ied", "ier", "iest"))
    return frozenset(forms)
