"""Methods of a loaded model with its heads: fill blanks, score and generate text, predict; and saving.

model = larvatus.load("runs/law")
model.fill("The appeal was [MASK].")[0].token
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from larvatus.core.run_identity import VERSION
from larvatus.core.tables import ResultList
from larvatus.core.text_inputs import checked_inputs, checked_texts
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.inference.cloze.fill import Candidates, fill_blanks
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.results import Fills, Score
from larvatus.inference.model.interpretable import InterpretableModel
from larvatus.inference.model.ranking import rank_passages
from larvatus.inference.vectors.layers import layers_label
from larvatus.inference.vectors.word_layers import set_word_layers
from larvatus.models.bundle.card import without_marks
from larvatus.models.bundle.directory import check_model_directory, save_changed
from larvatus.models.bundle.manifest import LAST
from larvatus.models.bundle.partial_updates import read_card, store_adapter
from larvatus.models.generation.generate import Generated, GenerateSettings, generate
from larvatus.models.masked_prediction import require_predictor
from larvatus.models.network import int8_weights
from larvatus.tasks.inputs import readable, text_or_pair
from larvatus.tasks.predict import Input, InputPlace, PredictOptions, TaskPredictor
from larvatus.tasks.prompt.pattern import NULL, LabelWords
from larvatus.tasks.prompt.prompted import NEUTRAL_TEXTS, prompt_config, score_prompt, with_demonstrations
from larvatus.tasks.registry import with_task
from larvatus.tasks.rerank.encode import RankedPassage
from larvatus.tasks.results import Classified, Prediction
from larvatus.tasks.scoring import ScoringOptions

if TYPE_CHECKING:
    from larvatus.inference.model.keywords import ModelGenerateKeywords, ModelPredictKeywords


class ModelFillKeywords(TypedDict, total=False):
    top: int
    beam: int
    joint: bool
    words_only: bool


class ModelPromptKeywords(TypedDict, total=False):
    pattern: str
    examples: Sequence[tuple[str, ...]]
    calibrate: bool
    neutral: Sequence[str]
    length: int | None


class Model(InterpretableModel):
    """A loaded model in evaluation mode, from `larvatus.load`. No call changes its state.

    Example:
        >>> model = lv.load("runs/mine", device="cpu")
        >>> model.fill("the [MASK] was wide", top=1)[0].token in model.tokenizer.tokens
        True
    """

    @overload
    def fill(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, texts: str, **settings: Unpack[ModelFillKeywords]
    ) -> Fills: ...

    @overload
    def fill(self, texts: Sequence[str], **settings: Unpack[ModelFillKeywords]) -> ResultList[Fills]: ...

    def fill(
        self,
        texts: str | Sequence[str],
        *,
        top: int = 5,
        beam: int = 10,
        joint: bool = True,
        words_only: bool = True,
    ) -> Fills | ResultList[Fills]:
        """The best words for the blanks of a text, each marked with the mask token; several are filled jointly.

        Args:
            texts: One text, or several.
            top: Number of candidates.
            beam: Beam size for several blanks.
            joint: Fill several blanks jointly; False gives only each blank's own candidates (`.marginals`).
            words_only: Only whole words; False also allows subwords (`##ing`), punctuation, and abbreviations before
                their period. Probabilities are the same: over the whole vocabulary, never renormalised.

        Returns:
            One result for one text, a list for several. A model that was trained with a generator fills with that.

        Example:
            >>> len(model.fill("the [MASK] ran", top=3))
            3
        """
        require_predictor(self.network, what="fill blanks", name=str(self.bundle.path))  # refused without a predictor
        listed, single = checked_texts(texts)
        kinds: Candidates = "words" if words_only else "tokens"
        fills = [
            fill_blanks(self.network, self.tokenizer, text, top=top, beam=beam, joint=joint, candidates=kinds)
            for text in listed
        ]
        warn_of_other_language(listed, self.tokenizer)
        return fills[0] if single else ResultList(fills)

    @overload
    def score(self, texts: str, *, method: Method = ...) -> Score: ...  # type: ignore[overload-overlap]  # see `fill`

    @overload
    def score(self, texts: Sequence[str], *, method: Method = ...) -> ResultList[Score]: ...

    def score(self, texts: str | Sequence[str], *, method: Method = "original") -> Score | ResultList[Score]:
        """Pseudo-log-likelihood of each text, by token and by word, and perplexity.

        A left-to-right model (gpt) gives the exact log-likelihood.

        Args:
            texts: One text, or several. Long ones are read completely.
            method: `original` masks one token at a time (Salazar et al. 2020), `word-l2r` also the rest of its word
                (Kauf & Ivanova 2023), so that the end of a rare word does not give it away.

        Returns:
            One score for one text, a list for several.

        Example:
            >>> [word.text for word in model.score("the river").words]
            ['the', 'river']
        """
        name = str(self.bundle.path)
        listed, single = checked_texts(texts)
        scores = list(score_texts(self.network, self.tokenizer, listed, method=method, name=name))
        warn_of_other_language(listed, self.tokenizer)
        return scores[0] if single else ResultList(scores)

    @overload
    def generate(  # type: ignore[overload-overlap]  # as in `fill`
        self, prompts: str, **settings: Unpack[ModelGenerateKeywords]
    ) -> Generated: ...

    @overload
    def generate(self, prompts: Sequence[str], **settings: Unpack[ModelGenerateKeywords]) -> ResultList[Generated]: ...

    def generate(
        self, prompts: str | Sequence[str], **settings: Unpack[ModelGenerateKeywords]
    ) -> Generated | ResultList[Generated]:
        """Continue a text, token by token, with a generative model such as gpt or t5.

        Args:
            prompts: One text, or several. A prompt longer than the model's context is refused.
            **settings: Those of `larvatus generate`. How long: `max_tokens` (50 by default, or what fits), `stop` (a
                text before which to end, or several). Which token: the likeliest; sampled by `temperature`, `top_k`,
                `top_p`, `samples` (continuations of each prompt) and `seed`; or by beam search with `beams`,
                `length_penalty` and `early_stopping`.

        Returns:
            One result for one prompt, a list for several. A continuation depends on the seed and the number of its
            prompt, not on the other prompts.

        Example:
            >>> writer.generate("the river", max_tokens=3).prompt
            'the river'
            >>> [len(each) for each in writer.generate(["the", "a"], max_tokens=3, temperature=0.8, samples=2)]
            [2, 2]
        """
        chosen = GenerateSettings.of(settings)
        listed, single = checked_texts(prompts, "prompts")
        results = generate(self.network, self.tokenizer, listed, chosen, name=str(self.bundle.path))
        return results[0] if single else ResultList(results)

    @overload
    def predict(  # type: ignore[overload-overlap]  # a text is an iterable of texts
        self, texts: str | tuple[str, ...], **settings: Unpack[ModelPredictKeywords]
    ) -> Prediction: ...

    @overload
    def predict(self, texts: Iterable[Input], **settings: Unpack[ModelPredictKeywords]) -> ResultList[Prediction]: ...

    def predict(
        self,
        texts: str | tuple[str, ...] | Iterable[Input],
        **settings: Unpack[ModelPredictKeywords],
    ) -> Prediction | ResultList[Prediction]:
        """Predictions of a fine-tuned head, or of several in one pass of the encoder.

        Args:
            texts: One input, or an iterable of several. An input is a text; a tuple is one input, too: a pair of texts
                for a classifier, a question and its passage, the words of a text for a tagger or a finder of spans.
                Among several, words may be a list.
            **settings: How long texts are read: `merge`, the scores of their windows by `mean` or `max` (a word is
                predicted in the window where it has the most context), `truncate` to the first window, `length`, the
                tokens of a window (as many as the model has positions), `overlap`, those that windows share (a
                quarter), and `batch_tokens`, those of a batch (0: what suits the device). What is given: `top` answers
                to a question, most likely first; `beams`, the beam size of a model that writes (greedy); `task`, of a
                model that has several: all by default, whose results are taken by name, `model.predict(text)["tag"]`.

        Returns:
            One answer for one input, a list for several. `.coverage` reports how much was read.

        Example:
            >>> classifier.predict("good").label in ("pos", "neg")
            True
            >>> len(classifier.predict(["good", "bad"]))
            2
        """
        options = predict_options(settings)
        predictor = TaskPredictor(self.bundle, options, self.device)
        inputs, single = checked_inputs(texts)
        predictions = list(predictor.predict(inputs))
        return predictions[0] if single else ResultList(predictions)

    def for_task(self, name: str) -> Self:
        """A model with only the head of one of its tasks, over the same weights.

        Args:
            name: A task that it was fine-tuned for, such as `tag`.

        Example:
            >>> classifier.for_task("classify").predict("good").label in ("pos", "neg")
            True
        """
        view = copy.copy(self)
        view.bundle, view.origin = with_task(self.bundle, name), None
        view.network = view.bundle.network
        return view

    def rerank(
        self,
        query: str,
        passages: Sequence[str],
        *,
        top: int | None = None,
        truncate: bool = False,
        overlap: int | None = None,
        length: int | None = None,
        batch_tokens: int = 0,
    ) -> ResultList[RankedPassage]:
        """Order passages by their relevance to a query, with a model of `larvatus finetune rerank`.

        Args:
            query: A question, or any text.
            passages: Candidates, such as the results of a search.
            top: Number of passages to return; all by default.
            truncate: Read only the first window of a passage; by default, all are read and the best one counts.
            overlap: Tokens that windows share; a quarter of a window by default.
            length: Tokens of a window; as many as the model has positions by default.
            batch_tokens: Tokens of a batch; 0 for what suits the device.

        Returns:
            The most relevant first, with `.score`, `.passage`, and `.index` in the given passages.

        Example:
            >>> ranked = reranker.rerank("where is the river", ["a town", "the river is here"], top=1)
            >>> len(ranked), ranked[0].rank, ranked[0].passage in ("a town", "the river is here")
            (1, 1, True)
        """
        options = PredictOptions(truncate=truncate, overlap=overlap, length=length, tokens=batch_tokens)
        return rank_passages(self.bundle, query, passages, options, device=str(self.device), top=top)

    @overload
    def prompt(  # type: ignore[overload-overlap]  # a text is an iterable of texts
        self, texts: str | tuple[str, str], words: LabelWords, **settings: Unpack[ModelPromptKeywords]
    ) -> Classified: ...

    @overload
    def prompt(
        self, texts: Iterable[str | tuple[str, str]], words: LabelWords, **settings: Unpack[ModelPromptKeywords]
    ) -> ResultList[Classified]: ...

    def prompt(
        self,
        texts: str | tuple[str, str] | Iterable[str | tuple[str, str]],
        words: LabelWords,
        *,
        pattern: str = NULL,
        examples: Sequence[tuple[str, ...]] = (),
        calibrate: bool = False,
        neutral: Sequence[str] = NEUTRAL_TEXTS,
        length: int | None = None,
    ) -> Classified | ResultList[Classified]:
        """Classify without training, by the probabilities of label words at the blank of a pattern.

        Args:
            texts: One text or pair, or several.
            words: The word of each label, or several: `{"pos": "great", "neg": ["terrible", "bad"]}`.
            pattern: `"{text} It was {blank}."`, of pairs `"{first}? {blank}, {second}"`; `null`: the text and a blank.
            examples: Demonstrations before each text, as many as fit: `(text, label)`, or pairs
                `(first, second, label)`.
            calibrate: Divide by the probabilities for neutral texts (Zhao et al. 2021).
            neutral: The neutral texts.
            length: Tokens of a sequence; as many as the model has positions by default. The pattern is never cut.

        Returns:
            One answer for one text, a list for several; `.coverage` reports how much of each was read.

        Example:
            >>> answer = model.prompt("the river", {"wet": "wide", "dry": "deep"}, pattern="{text} was {blank}.")
            >>> answer.label in ("wet", "dry")
            True
        """
        given, single = checked_inputs(texts)
        inputs = [
            readable(text_or_pair(text, InputPlace("text", number))) for number, text in enumerate(given, start=1)
        ]
        pair = bool(inputs) and inputs[0].pair is not None
        config = prompt_config(self.bundle, pattern=pattern, words=words, pair=pair)
        shown = tuple((row[0], row[1] if len(row) == 3 else None, row[-1]) for row in examples)
        known = score_prompt(
            self.bundle,
            with_demonstrations(config, shown),
            inputs,
            neutral=neutral if calibrate else (),
            length=length,
            scoring=ScoringOptions(device=str(self.device)),
        )
        answers = known.answers(inputs)
        return answers[0] if single else ResultList(answers)

    @overload
    def __call__(  # type: ignore[overload-overlap]  # as in `predict`
        self, texts: str | tuple[str, ...], **settings: Unpack[ModelPredictKeywords]
    ) -> Prediction: ...

    @overload
    def __call__(self, texts: Iterable[Input], **settings: Unpack[ModelPredictKeywords]) -> ResultList[Prediction]: ...

    def __call__(
        self, texts: str | tuple[str, ...] | Iterable[Input], **settings: Unpack[ModelPredictKeywords]
    ) -> Prediction | ResultList[Prediction]:
        """`tagger("Mt. Sanitas is in Sunshine Canyon.").entities`: the same as `predict`."""
        return self.predict(texts, **settings)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a directory, in the Hugging Face layout if one fits.

        Args:
            directory: A new directory.
            overwrite: Replace an existing model.

        Returns:
            The directory.

        Example:
            >>> lv.load(model.save("runs/copy")).tokenizer.size == model.tokenizer.size
            True
        """
        out, bundle = Path(directory), self.bundle
        check_model_directory(out, overwrite=overwrite, inputs=[bundle.path])
        before = without_marks(read_card(bundle))  # its claims need not hold for the model in memory
        origin = f"Saved by Larvatus {VERSION} from a model in memory, which was made from `{bundle.path}`."
        card = f"# {out.name}\n\n{origin}\n" + (f"\n## The card of `{bundle.path}`\n\n{before}" if before else "")
        try:
            lineage = {"parent": str(bundle.path), "parent_lineage": bundle.lineage}
            save_changed(bundle, out, lineage=lineage, card=card)
        finally:
            self.network.to(self.device)
        if bundle.adapter is not None:
            store_adapter(out, bundle.adapter, dtype="float32")
        if bundle.word_layers != LAST:
            set_word_layers(out, bundle.word_layers)
        return out

    def __repr__(self) -> str:
        model = self.bundle.model
        parameters = sum(p.numel() for p in self.network.parameters()) + int8_weights(self.network)
        number = f" in {self.number}" if self.number else ""
        attention = f"{model.heads} heads, " if hasattr(model, "heads") else ""  # not every encoder has them
        heads = ", ".join(self.network.heads) or "no heads"
        words = "" if self.bundle.word_layers == LAST else f" (words: {layers_label(self.bundle.word_layers)})"
        return (
            f"<Model {self.bundle.path}: {model.layers} layers{words}, {model.hidden} hidden, {attention}"
            f"{parameters / 1e6:.1f}M parameters, {self.tokenizer.size:,} tokens, {heads}, on {self.device}{number}>"
        )


def predict_options(settings: ModelPredictKeywords) -> PredictOptions:
    """The options of `predict` from its keywords."""
    given: dict[str, Any] = {**settings}
    return PredictOptions(tokens=given.pop("batch_tokens", 0), **given)
