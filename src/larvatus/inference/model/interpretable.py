"""Methods of a loaded model that look inside it: attention, the lens, explanations, patches.

model.lens("The keys to the cabinet [MASK] on the table.").blanks[0].decided
classifier.explain("A dull film.").top(1)[0].text
model.patch("The key [MASK] here.", "The keys [MASK] here.", answers=("is", "are")).effects["residual"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict, Unpack, overload

from larvatus.core.tables import ResultList
from larvatus.core.text_inputs import checked_inputs, checked_text, checked_texts
from larvatus.inference.cloze.fill import Candidates
from larvatus.inference.interpret.attention import TextAttention, attend
from larvatus.inference.interpret.attributions import Baseline, ExplainOptions, Method
from larvatus.inference.interpret.explain import explain
from larvatus.inference.interpret.explanation import Explanation
from larvatus.inference.interpret.lens import read_lens
from larvatus.inference.interpret.lens_results import LensResult
from larvatus.inference.interpret.patching import PatchMap, patch_pair
from larvatus.inference.interpret.tuned_lens import Lens, TunedLens, lens_for, masked_lm_predictor
from larvatus.inference.model.encoder import EncoderModel
from larvatus.tasks.inputs import Input
from larvatus.tasks.outcome import OutcomeChoice


class ModelLensKeywords(TypedDict, total=False):
    tuned: str | TunedLens | None
    top: int
    words_only: bool


class ModelExplainKeywords(TypedDict, total=False):
    target: str | None
    at: int | str | None
    methods: Method | Sequence[Method]
    baseline: Baseline
    steps: int
    tolerance: float


class InterpretableModel(EncoderModel):
    """A loaded model that can be looked into. No call changes its state."""

    @overload
    def attention(self, texts: str) -> TextAttention: ...  # type: ignore[overload-overlap]  # as in `nearest`

    @overload
    def attention(self, texts: Sequence[str]) -> ResultList[TextAttention]: ...

    def attention(self, texts: str | Sequence[str]) -> TextAttention | ResultList[TextAttention]:
        """Attention weights of every head on a text.

        Args:
            texts: One text that fits into the model's window, or several.

        Returns:
            For one text its `.tokens` and `.weights` [layers, heads, T, T], a row for each token; a list for several.

        Example:
            >>> model.attention("the river").weights.shape
            (2, 2, 4, 4)
        """
        listed, single = checked_texts(texts)
        weights = [attend(self.encoder, self.tokenizer, text) for text in listed]
        return weights[0] if single else ResultList(weights)

    @overload
    def lens(  # type: ignore[overload-overlap]  # a text is a sequence of texts
        self, texts: str, **settings: Unpack[ModelLensKeywords]
    ) -> LensResult: ...

    @overload
    def lens(self, texts: Sequence[str], **settings: Unpack[ModelLensKeywords]) -> ResultList[LensResult]: ...

    def lens(
        self,
        texts: str | Sequence[str],
        *,
        tuned: str | TunedLens | None = None,
        top: int = 3,
        words_only: bool = True,
    ) -> LensResult | ResultList[LensResult]:
        """What each layer of a masked language model would fill into the blanks of a text.

        Args:
            texts: One text with blanks that fits into the model's window, or several.
            tuned: A tuned lens of `larvatus lens train`, by its name in the model's directory or its file; None for the
                logit lens, which is the masked-LM head on every layer.
            top: Number of words of each layer.
            words_only: Only whole words, as in `fill`; probabilities are over the whole vocabulary.

        Returns:
            For each blank its layers (top words, KL to the last layer), the layer at which it is `decided`, and the
            words of its `context`, that with the strongest effect first; a list for several texts.

        Example:
            >>> blank = model.lens("the [MASK] was wide").blanks[0]
            >>> blank.layers[-1].top[0].token == model.fill("the [MASK] was wide")[0].token
            True
        """
        lens = Lens(masked_lm_predictor(self.network, self.tokenizer, str(self.bundle.path)), lens_for(self, tuned))
        kinds: Candidates = "words" if words_only else "tokens"
        listed, single = checked_texts(texts)
        results = [read_lens(lens, self.network, self.tokenizer, text, top=top, candidates=kinds) for text in listed]
        return results[0] if single else ResultList(results)

    @overload
    def explain(  # type: ignore[overload-overlap]  # a text is an iterable of texts
        self, texts: str | tuple[str, ...], **settings: Unpack[ModelExplainKeywords]
    ) -> Explanation: ...

    @overload
    def explain(self, texts: Iterable[Input], **settings: Unpack[ModelExplainKeywords]) -> ResultList[Explanation]: ...

    def explain(
        self,
        texts: str | tuple[str, ...] | Iterable[Input],
        *,
        target: str | None = None,
        at: int | str | None = None,
        methods: Method | Sequence[Method] = "integrated-gradients",
        baseline: Baseline = "mask",
        steps: int = 32,
        tolerance: float = 0.01,
    ) -> Explanation | ResultList[Explanation]:
        """Attribute a filled blank, a class, a tag or an answer to the words of its text.

        Args:
            texts: One input, or several, as for `predict`; for a model without a task, texts with blanks.
            target: The class, tag, answer or token to explain; by default what the model predicts.
            at: The blank, or the word whose tag is explained, by number from 1; a word also by itself. By default the
                first blank, or the word with the surest tag other than O.
            methods: `integrated-gradients`, `gradient-x-input`, `leave-one-out`, `attention-rollout`, one or several.
            baseline: Word vectors that gradients compare with: of the `mask` token, or `zero`.
            steps: First steps of integrated gradients; doubled until the completeness gap is small.
            tolerance: Largest gap, in nats.

        Returns:
            The words with their scores by method; a list for several inputs.

        Example:
            >>> explanation = model.explain("the [MASK] was wide", methods=["leave-one-out"])
            >>> [word.text for word in explanation.words]
            ['the', 'was', 'wide']
        """
        named = (methods,) if isinstance(methods, str) else tuple(methods)
        options = ExplainOptions(methods=named, baseline=baseline, steps=steps, tolerance=tolerance)
        choice = OutcomeChoice(target=target, at=at)
        inputs, single = checked_inputs(texts)
        results = [explain(self, given, choice, options, number=n) for n, given in enumerate(inputs, start=1)]
        return results[0] if single else ResultList(results)

    def patch(
        self,
        first: str,
        second: str,
        *,
        answers: Sequence[str],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> PatchMap:
        """Where a model carries what makes it answer differently in two sentences (activation patching).

        Args:
            first: A sentence with one blank.
            second: The same sentence with other words in some places, as many words and tokens.
            answers: The first sentence's answer, and the second's: each one token of the vocabulary.
            progress: Called with the number of layers that are done, and of how many.

        Returns:
            For each layer and word the effect of replacing the first sentence's state by the second's: 0 leaves the
            log-odds of the answers, 1 gives those of the second sentence. `.effects["residual"]`, `["attention"]`,
            `["feedforward"]`; a table if printed, a map in a notebook.

        Example:
            >>> patched = model.patch("the [MASK] ran to the river", "the [MASK] ran to the town", answers=("a", "the"))
            >>> patched.effects["residual"].shape[0] == model.encoder.depth + 1
            True
        """
        pair = checked_text(first, "first"), checked_text(second, "second")
        name = str(self.bundle.path)
        return patch_pair(self.network, self.tokenizer, *pair, answers=answers, name=name, progress=progress)
