"""A WordNet of some twenty senses, tagged text and a test set, written by hand; a tiny model over its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from larvatus.inference.model import Model, load
from larvatus.inference.senses.wordnet import WordNet

# name: part of speech, lexicographer file, words with their ids, pointers (symbol, name), gloss
SYNSETS = {
    "entity": ("n", 3, "entity:0", [], "that which is"),
    "slope": ("n", 17, "slope:0", [("@", "entity")], 'an elevated formation; "he climbed the steep slope"'),
    "firm": ("n", 14, "firm:0", [("@", "entity")], "a business"),
    "river": ("n", 17, "river:0", [("@", "entity")], "a stream of water"),
    "nile": ("n", 17, "Nile:0", [("@i", "river")], "a river of Africa"),
    "shore": ("n", 17, "shore:0", [("@", "slope")], "land along the edge of water"),
    "bank": ("n", 17, "bank:1", [("@", "slope")], 'sloping land; "on the bank of the river"; "by the bank"'),
    "money": ("n", 14, "depository:0 bank:0", [("@", "firm")], "a firm that accepts deposits"),
    "bakery": ("n", 14, "bakery:0", [("@", "firm")], "a firm that bakes"),
    "house": ("n", 6, "bank:2", [("@", "entity")], "a building in which business is done"),
    "homework": ("n", 4, "homework:0", [("@", "entity")], "work for school"),
    "goose": ("n", 5, "goose:0", [("@", "entity")], "a bird"),
    "river_bank": ("n", 17, "river_bank:0 riverbank:0", [("@", "bank")], "the bank of a river"),
    "tip": ("v", 38, "bank:0", [], "tip sideways"),
    "turn": ("v", 38, "turn:0", [], "change direction"),
    "turn_in": ("v", 40, "turn_in:0", [], "hand over"),
    "run": ("v", 38, "run:0", [("@", "turn")], "move fast"),
    "wide": ("a", 0, "wide:0", [], "of great extent"),
    "broad": ("s", 0, "broad:0 deep(p):0", [("&", "wide")], "rather wide"),
    "please": ("r", 2, "please:0", [], "used in requests"),
}
RANKS = {"bank%1:14:00::": (1, 20), "bank%1:17:01::": (2, 15), "bank%1:06:02::": (3, 1)}
"""Rank and count of each sense; the others are the only ones of their lemma."""
EXCEPTIONS = {"noun": "geese goose\n", "verb": "ran run\n", "adj": "", "adv": ""}
FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "s": "data.adj", "r": "data.adv"}
TYPES = {"n": 1, "v": 2, "a": 3, "r": 4, "s": 5}

SEMCOR = """<contextfile concordance="brown">
<context filename="br-a01" paras="yes">
<p pnum="1">
<s snum="1">
<wf cmd="ignore" pos="DT">The</wf>
<wf cmd="done" pos="NN" lemma="bank" wnsn="2" lexsn="1:17:01::">bank</wf>
<wf cmd="ignore" pos="IN">of</wf>
<wf cmd="ignore" pos="DT">the</wf>
<wf cmd="done" pos="NN" lemma="river" wnsn="1" lexsn="1:17:00::">river</wf>
<wf cmd="done" pos="VB" ot="notag">was</wf>
<wf cmd="done" pos="JJ" lemma="wide" wnsn="1" lexsn="3:00:00::">wide</wf>
<punc>.</punc>
</s>
<s snum=2>
<punc>``</punc>
<wf cmd=done rdf=group pos=NNP lemma=firm wnsn=1 lexsn=1:14:00:: pn=group>Wide_River_Bank</wf>
<wf cmd=done pos=NN lemma=bank wnsn=1;3 lexsn=1:14:00::;1:06:02::>bank</wf>
<wf cmd=done pos=VB lemma=run wnsn=9 lexsn=2:99:00::>run</wf>
<wf cmd=done pos=NN lemma=shore wnsn=1 lexsn=1:17:00::>bank</wf>
<punc>''</punc>
</s>
<s snum="3">
<wf cmd="done" pos="NN" lemma="bank" wnsn="2" lexsn="1:17:01::">bank</wf>
<wf cmd="done" pos="NN" lemma="bakery" wnsn="1" lexsn="1:14:00::">deep</wf>
<wf cmd="done" pos="JJ" lemma="broad" wnsn="1" lexsn="5:00:00:wide:00">wide</wf>
<wf cmd="ignore" pos="CC">&amp;</wf>
</s>
</p>
</context>
</contextfile>
"""
DATA = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="made">
<text id="d000">
<sentence id="d000.s000">
<wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="bank" pos="NOUN">bank</instance>
<wf lemma="of" pos="ADP">of</wf>
<instance id="d000.s000.t001" lemma="river" pos="NOUN">river</instance>
<wf lemma="." pos=".">.</wf>
</sentence>
<sentence id="d000.s001">
<wf lemma="-LRB-" pos=".">-LRB-</wf>
<instance id="d000.s001.t000" lemma="bank" pos="NOUN">banks</instance>
<instance id="d000.s001.t001" lemma="turn_in" pos="VERB">turn&apos;d_in</instance>
</sentence>
</text>
</corpus>
"""
GOLD = """d000.s000.t000 bank%1:17:01::
d000.s000.t001 river%1:17:00::
d000.s001.t000 bank%1:14:00:: bank%1:06:02::
d000.s001.t001 turn_in%2:40:00::
"""


def write_wordnet(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    offsets: dict[str, int] = {}
    for final in (False, True):  # lines have the same length once offsets have their eight digits
        lines = dict.fromkeys(FILES.values(), "  1 This stands for the licence.  \n")
        for name, (pos, lex, words, pointers, gloss) in SYNSETS.items():
            file = FILES[pos]
            offsets.setdefault(name, 0)
            if not final:
                offsets[name] = len(lines[file].encode())
            own = " ".join(f"{word.rpartition(':')[0]} {word.rpartition(':')[2]}" for word in words.split())
            up = "".join(
                f" {sign} {offsets.get(to, 0):08d} {SYNSETS[to][0].replace('s', 'a')} 0000" for sign, to in pointers
            )
            head = f"{offsets[name]:08d} {lex:02d} {pos} {len(words.split()):02x} {own} {len(pointers):03d}{up}"
            lines[file] += f"{head} | {gloss}  \n"
    for file, text in lines.items():
        (folder / file).write_text(text)
    index = []
    for name, (pos, lex, words, pointers, _) in SYNSETS.items():
        for word in words.split():
            lemma, _, number = word.rpartition(":")
            head = f"{pointers[0][1]}:00" if pos == "s" else ":"
            key = f"{lemma.partition('(')[0].lower()}%{TYPES[pos]}:{lex:02d}:{int(number):02d}:{head}"
            rank, count = RANKS.get(key, (1, 2))
            index.append(f"{key} {offsets[name]:08d} {rank} {count}\n")
    (folder / "index.sense").write_text("".join(sorted(index)))
    for name, text in EXCEPTIONS.items():
        (folder / f"{name}.exc").write_text(text)
    return folder


@pytest.fixture(scope="session")
def wordnet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wordnet(tmp_path_factory.mktemp("wordnet"))


@pytest.fixture(scope="session")
def wordnet(wordnet_folder: Path) -> WordNet:
    return WordNet.open(wordnet_folder)


@pytest.fixture(scope="session")
def semcor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("semcor")
    (folder / "brown1_br-a01").write_text(SEMCOR)
    (folder / "README").write_text("not of it\n")
    return folder


@pytest.fixture(scope="session")
def made_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "made.data.xml").write_text(DATA)
    (folder / "made.gold.key.txt").write_text(GOLD)
    return folder / "made.data.xml"


@pytest.fixture(scope="session")
def model(tiny_model, save_tiny, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(save_tiny(tmp_path_factory.mktemp("model") / "tiny", tiny_model()), device="cpu")
