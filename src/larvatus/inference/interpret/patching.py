"""Activation patching between two sentences that differ in a few words (Vig et al. 2020; Meng et al. 2022).

    patched = patch_pair(network, tokenizer, "The key to the cabinets [MASK] here.",
                       "The keys to the cabinets [MASK] here.", answers=("is", "are"))
    patched.effects["residual"][3, 2]          # layer 3, the second word: 'key'

The model reads the first sentence, but at one layer and word its state is replaced by that of the second sentence. With
the log-odds of the two answers at the blank, o = log p(b) − log p(a), the effect of a patch is

    (o_patched − o_first) / (o_second − o_first)           0: as in the first sentence; 1: as in the second

Three things are patched: the residual stream (all that a layer hands to the next one; layer 0 is the embeddings), and
what attention or the feedforward layer adds to it. Patching the residual stream of all words at a layer makes the rest
of the run that of the second sentence, so its effect is exactly 1. Effects of single words need not sum to 1.

Words correspond one to one, and so must their tokens, since a state has a position; other pairs are refused. All
patches of a layer are copies of the first sentence in one flat batch. U words and special tokens, T tokens, C copies.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import NO_WORD, runs
from larvatus.core.drawing import Element, element, folded_table, in_notebook, legible, scroll_box, text_width
from larvatus.core.errors import UsageError
from larvatus.core.tables import ReportPart, Table, Tabular, render_text
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.fill import Blanks, mark_of, read_blanks
from larvatus.inference.interpret.interventions import Edit, Site, capture, edited
from larvatus.models.masked_prediction import MaskedPredictor, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import forward_budget, on_device
from larvatus.models.objectives import MaskedLM

PATCHED: tuple[Site, ...] = ("residual", "attention", "feedforward")
EVERYTHING = "all words"
LEAST = 1e-4
"""Smallest difference of log-odds that can be explained."""


@dataclass(frozen=True, eq=False, repr=False)
class PatchMap(Tabular):
    """Effects of patches by layer and word."""

    first: str
    second: str
    answers: tuple[str, str]
    """The first sentence's answer, and the second's."""
    odds: tuple[float, float]
    """Log-odds of the second answer against the first in each sentence, in nats."""
    words: tuple[str, ...]
    """Words and special tokens; where the sentences differ, both words."""
    effects: dict[Site, Floats]
    """[layers, U + 1] effects of each site; the last column patches all words. Rows are layers from 1, those of the
    residual stream from 0.
    """

    def to_dict(self) -> dict[str, Any]:
        names = ("first", "second", "answers", "odds", "words")
        return {**{name: getattr(self, name) for name in names}, "effects": self.to_dicts()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each patch: what is patched, layer, place from 1 (None: all words), word, effect."""
        return [
            {
                "site": site,
                "layer": layer + (site != "residual"),
                "place": None if word == len(self.words) else word + 1,
                "word": EVERYTHING if word == len(self.words) else self.words[word],
                "effect": float(effects[layer, word]),
            }
            for site, effects in self.effects.items()
            for layer, word in np.ndindex(*effects.shape)
        ]

    def parts(self) -> Iterator[ReportPart]:
        """Everything that `larvatus patch` prints."""
        a, b = self.answers
        yield f"log-odds of {b!r} against {a!r}: first sentence {self.odds[0]:+.3f}, second {self.odds[1]:+.3f}"
        yield "effect of replacing the first sentence's state by the second's: 0 changes nothing, 1 gives its log-odds"
        for site in self.effects:
            columns, rows = self._grid(site)
            yield Table(columns, rows, blank_before=True)

    def _grid(self, site: Site) -> tuple[list[str], list[list[str]]]:
        """A row for each word, a column for each layer."""
        effects = self.effects[site]
        layers = [str(layer + (site != "residual")) for layer in range(len(effects))]
        rows = zip((*self.words, EVERYTHING), effects.T.tolist(), strict=True)
        return [f"{site}, layer", *layers], [
            [word, *(f"{round(value, 2) + 0.0:.2f}" for value in row)]
            for word, row in rows  # no -0.00
        ]

    def draw(self) -> Element:
        """The maps, with their numbers as tables."""
        parts: list[Element] = []
        for site in self.effects:
            columns, rows = self._grid(site)
            heads = element("h3", {}, columns[0])
            parts += [heads, scroll_box(f"{site}: effects by word and layer", _heat_map(columns[1:], rows))]
            parts.append(folded_table("Numbers", columns, rows))
        note = "Effect of a patch: 0 (white) changes nothing, 1 (blue) gives the second sentence; below 0 is red."
        return element("div", {"class": "lv"}, *parts, element("p", {"class": "lv-note"}, note))

    def _repr_html_(self) -> str:
        return in_notebook(self.draw())

    def __str__(self) -> str:
        return render_text(self.parts())

    def __repr__(self) -> str:
        return f"<PatchMap of {len(self.words)} words, {len(self.effects['attention'])} layers>"


_CELL, _ROW = 44.0, 26.0


def _heat_map(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    side = max(text_width(row[0]) for row in rows) + 12
    width, height = side + _CELL * len(columns), _ROW * (len(rows) + 1)
    parts = [
        element("text", {"x": side + _CELL * (n + 0.5), "y": 18, "text-anchor": "middle", "class": "lv-label"}, name)
        for n, name in enumerate(columns)
    ]
    for number, (word, *values) in enumerate(rows, 1):
        y = _ROW * number
        parts.append(element("text", {"x": side - 8, "y": y + 18, "text-anchor": "end", "class": "lv-word"}, word))
        for n, value in enumerate(values):
            size, colour = min(1.0, abs(float(value))), "hsl(205,70%,50%)" if float(value) >= 0 else "hsl(5,70%,50%)"
            box = {"x": side + _CELL * n, "y": y, "width": _CELL - 1, "height": _ROW - 1}
            parts.append(element("rect", {**box, "fill": colour, "fill-opacity": f"{0.75 * size:.2f}"}))
            where = {"x": side + _CELL * (n + 0.5), "y": y + 17, "text-anchor": "middle", "class": "lv-label"}
            parts.append(element("text", where, value))
    return element("svg", {"width": width, "height": height, "viewBox": f"0 0 {width:.0f} {height:.0f}"}, *parts)


@dataclass(frozen=True, eq=False)
class _Sentence:
    """One sentence with its blank."""

    row: tuple[Ints, Ints]
    """[T] ids and words, without special tokens."""
    units: tuple[Ints, ...]
    """[U] the tokens of each word or special token."""
    names: tuple[str, ...]
    opening: int
    """Special tokens before the text."""
    blank: int
    """The blank among the tokens of the text."""
    answers: tuple[int, int]


@torch.inference_mode()
def patch_pair(
    network: Network,
    tokenizer: Tokenizer,
    first: str,
    second: str,
    *,
    answers: Sequence[str],
    name: str = "the model",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PatchMap:
    """The effects of all patches from the second sentence into the first. `progress` counts layers."""
    predictor = require_predictor(network, tokenizer, what="patch answers", name=name)
    if not isinstance(predictor.head, MaskedLM):
        raise UsageError(
            f"{name} predicts blanks from a query stream, which patching does not reach; use a model pretrained with "
            "masked-lm"
        )
    if isinstance(answers, str) or len(answers) != 2 or len({*answers}) != 2 or {*map(type, answers)} != {str}:
        raise UsageError("patching compares two answers, the first sentence's and the second's, such as is,are")
    pair = [_read(text, tokenizer, answers, predictor, what) for text, what in ((first, "first"), (second, "second"))]
    words = _aligned(*pair)
    run = _Patching(predictor, tokenizer, *pair)
    odds = [float(run.odds(sentence, [])[0]) for sentence in pair]
    if abs(odds[1] - odds[0]) < LEAST:
        raise UsageError(
            f"both sentences give {answers[1]!r} and {answers[0]!r} the same log-odds, {odds[0]:.4f}, so there is "
            "nothing to explain; give sentences with different answers"
        )
    depth = predictor.encoder.depth
    places = [(site, layer) for layer in range(depth + 1) for site in PATCHED if layer or site == "residual"]
    states = capture(predictor.encoder, run.batch(pair[1], 1), places)
    effects: dict[Site, list[Floats]] = {site: [] for site in PATCHED}
    for layer in range(depth + 1):
        sites = PATCHED if layer else PATCHED[:1]
        everything = np.arange(len(states["residual", 0]))
        patches = [(site, rows) for site in sites for rows in (*pair[0].units, everything)]
        edits = [Edit(site, layer, states[site, layer][rows], rows=torch.from_numpy(rows)) for site, rows in patches]
        effect = (run.odds(pair[0], edits) - odds[0]) / (odds[1] - odds[0])
        for site, of_site in zip(sites, np.split(effect, len(sites)), strict=True):
            effects[site].append(of_site)
        progress(layer + 1, depth + 1)
    stacked = {site: np.stack(rows).astype(np.float32) for site, rows in effects.items()}
    return PatchMap(first, second, (answers[0], answers[1]), (odds[0], odds[1]), words, stacked)


@dataclass(frozen=True, eq=False)
class _Patching:
    predictor: MaskedPredictor
    tokenizer: Tokenizer
    first: _Sentence
    second: _Sentence

    def batch(self, sentence: _Sentence, copies: int) -> Any:
        return on_device(wrap_batch(self.tokenizer, [[sentence.row]] * copies), self.predictor.device)

    def odds(self, sentence: _Sentence, edits: Sequence[Edit]) -> Floats:
        """Log-odds of the second answer against the first, in a copy of the sentence for each edit."""
        encoder, head, device = self.predictor.encoder, self.predictor.head, self.predictor.device
        assert isinstance(head, MaskedLM)
        size = len(sentence.row[0]) + self.tokenizer.template.single.special_count
        a, b = sentence.answers
        parts: list[Tensor] = []
        for start, end in runs(np.full(max(1, len(edits)), size), forward_budget(device)):
            batch = self.batch(sentence, end - start)
            moved = [
                Edit(edit.site, edit.layer, edit.values, rows=(edit.rows + size * copy).to(device))
                for copy, edit in enumerate(edits[start:end])
                if edit.rows is not None
            ]
            blanks = torch.arange(end - start, device=device) * size + sentence.opening + sentence.blank
            states_ND: Any = edited(encoder, moved, batch)(batch) if moved else encoder(batch)
            h_CE = head.transform(states_ND[blanks])
            words_VE = self.predictor.words_VE
            parts.append(h_CE @ (words_VE[b] - words_VE[a]) + head.bias[b] - head.bias[a])
        odds: Floats = torch.cat(parts).double().cpu().numpy()
        return odds


def _read(text: str, tokenizer: Tokenizer, answers: Sequence[str], predictor: MaskedPredictor, what: str) -> _Sentence:
    blanks = read_blanks(text, tokenizer)
    if len(blanks.places) != 1:
        raise UsageError(
            f"the {what} sentence has {len(blanks.places)} blanks; mark one with {mark_of(text, tokenizer)}"
        )
    if len(blanks.ids) > (longest := predictor.longest_text(tokenizer)):
        raise UsageError(
            f"the {what} sentence has {len(blanks.ids):,} tokens and the model's window has {longest:,}; shorten it"
        )
    template = tokenizer.template.single
    words = template.fill(NO_WORD, blanks.words)
    starts = np.flatnonzero(np.r_[True, (words[1:] != words[:-1]) | (words[1:] == NO_WORD)])
    units = tuple(np.split(np.arange(len(words)), starts[1:]))
    ids = template.ids(blanks.ids)
    names = [tokenizer.decode(ids[unit].tolist()).strip() for unit in units]
    names = [
        name or tokenizer.readable(tokenizer.token(int(ids[unit[0]]))) for name, unit in zip(names, units, strict=True)
    ]
    tokens = (_answer(answers[0], blanks, tokenizer), _answer(answers[1], blanks, tokenizer))
    shown = tuple(map(legible, names))
    return _Sentence((blanks.ids, blanks.words), units, shown, template.opening, blanks.places[0], tokens)


def _answer(word: str, blanks: Blanks, tokenizer: Tokenizer) -> int:
    """The token of an answer in the blank."""
    before, after = blanks.pieces
    filled = tokenizer.encode(before + word + after)
    tokens = filled.tokens_of_chars(len(before), len(before) + len(word))
    if not word.strip() or len(tokens) != 1:
        raise UsageError(
            f"the answer {word!r} is {len(tokens)} tokens of this vocabulary; patching compares answers of one token"
        )
    if filled.ids[tokens.start] == tokenizer.id(tokenizer.special.unk):
        raise UsageError(f"the answer {word!r} is unknown to this vocabulary; choose another")
    return int(filled.ids[tokens.start])


def _aligned(first: _Sentence, second: _Sentence) -> tuple[str, ...]:
    """Names of the words, both where they differ; sentences that do not correspond word by word are refused."""
    blocks = difflib.SequenceMatcher(None, first.names, second.names, autojunk=False).get_opcodes()
    for _, a, b, c, d in blocks:
        if b - a != d - c:
            here, there = (
                repr(" ".join(names)) if names else "nothing" for names in (first.names[a:b], second.names[c:d])
            )
            raise UsageError(
                f"the sentences do not align word by word: {here} at word {a + 1 - first.opening} of the first is "
                f"{there} in the second; give sentences with the same number of words"
            )
    for number, (left, right) in enumerate(zip(first.units, second.units, strict=True)):
        if len(left) != len(right):
            raise UsageError(
                f"the words do not align token by token: {first.names[number]!r} has {len(left)} tokens and "
                f"{second.names[number]!r} has {len(right)}; use words with equal numbers of tokens"
            )
    if first.blank != second.blank:
        raise UsageError("the blanks are at different words; put them at the same word")
    if first.answers != second.answers:
        raise UsageError("an answer is another token in the second sentence; write both blanks alike")
    both = zip(first.names, second.names, strict=True)
    return tuple(left if left == right else f"{left} → {right}" for left, right in both)
