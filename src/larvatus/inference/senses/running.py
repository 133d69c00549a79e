"""Words of running text that are in WordNet, with the lemmas they may be forms of; longest phrases first.

    [sentence.instances for sentence in find_instances("They took place by the river bank.", wordnet)]

Parts of speech are not tagged: a word may have any part of speech that WordNet has for it. `find_tagged` reads text
with tags, as in `They/PRON saw/VERB a/DET bat/NOUN`. Function words are skipped, because WordNet lists some of them
only in other meanings (*in* as an inch, *I* as iodine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from larvatus.core.errors import DataError
from larvatus.data.text.sentences import Mode, sentence_spans
from larvatus.data.text.words import segment_words
from larvatus.inference.senses.tagged import Lemmas, SenseInstance, SenseSentence, SentenceBuilder
from larvatus.inference.senses.wordnet import NAMES, POS, WordNet

_CLOSED = """
    a an the this that these those each every some any no all both either neither such what which whose i me my mine
    myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it
    its itself they them their theirs themselves one ones who whom someone anyone everyone nobody of in on at by for
    with from to into onto upon about as over under through during before after between among against within without
    toward towards across along behind beside beyond near off out up down than per via and or but nor so yet if
    because while although though unless until whether when where why how since will would can could may might shall
    should must ought not there s t d m ll re ve
"""
FUNCTION_WORDS = frozenset(_CLOSED.split())
"""Closed classes of English, and remains of clitics; content words of the same form (a *can*) are skipped, too."""
PENN: dict[str, POS] = {"N": "n", "V": "v", "J": "a", "R": "r"}
UNIVERSAL: dict[str, POS] = {"NOUN": "n", "PROPN": "n", "VERB": "v", "AUX": "v", "ADJ": "a", "ADV": "r"}


def find_instances(
    text: str,
    wordnet: WordNet,
    *,
    pos: Sequence[POS] | None = None,
    sentences: Mode = "library",
    document: str = "",
) -> list[SenseSentence]:
    """The sentences of a text, each with its words that are in WordNet."""
    with_instances = []
    for start, end in sentence_spans(text, mode=sentences):
        sentence = text[start:end]
        with_instances.append(SenseSentence(document, sentence, tuple(_instances(sentence, wordnet, pos)), start))
    return with_instances


def find_tagged(text: str, wordnet: WordNet, *, where: str = "") -> tuple[str, list[SenseSentence]]:
    """Sentences, one per line, whose words have their part of speech after a slash; and the text without the tags.

    Tags are universal, Penn, or WordNet's own n, v, a, r. `where` precedes error messages.
    """
    sentences: list[SenseSentence] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = SentenceBuilder()
        for item in line.split():
            word, _, tag = item.rpartition("/")
            if not word or not tag:
                raise DataError(
                    f"{where}{item[:40]} in line {number} has no part of speech; write bank/NOUN, or leave out --pos"
                )
            span = words.add(word.replace("_", " "))
            pos = UNIVERSAL.get(tag.upper()) or PENN.get(tag[:1]) or (tag if tag in NAMES else None)
            lemmas = tuple(wordnet.lemmas(word, pos)) if pos else ()
            if lemmas:
                words.instances.append(SenseInstance(*span, lemmas))
        sentences.append(replace(words.sentence(""), start=start))
        start += len(sentences[-1].text) + 1
    return "\n".join(sentence.text for sentence in sentences), sentences


def _instances(text: str, wordnet: WordNet, pos: Sequence[POS] | None) -> list[SenseInstance]:
    spans = segment_words(text).tolist()
    instances: list[SenseInstance] = []
    place = 0
    while place < len(spans):
        most = _most(text[slice(*spans[place])], wordnet)
        step = 1
        for last in range(min(place + most, len(spans)) - 1, place - 1, -1):
            start, end = spans[place][0], spans[last][1]
            lemmas = _lemmas(text[start:end], wordnet, pos, single=last == place)
            if lemmas:
                instances.append(SenseInstance(start, end, lemmas))
                step = last - place + 1
                break
        place += step
    return instances


def _lemmas(text: str, wordnet: WordNet, pos: Sequence[POS] | None, *, single: bool) -> Lemmas:
    word = "_".join(text.lower().split())
    if single and (word in FUNCTION_WORDS or not any(map(str.isalnum, word))):
        return ()
    return tuple((lemma, kind) for lemma, kind in wordnet.lemmas(word) if pos is None or kind in pos)


def _most(word: str, wordnet: WordNet) -> int:
    """Number of words of the longest phrase that begins with a word or one of its lemmas."""
    lower, heads = word.lower(), wordnet.phrase_heads
    return max(heads.get(form, 1) for form in {lower, *(lemma for lemma, _ in wordnet.lemmas(lower))})
