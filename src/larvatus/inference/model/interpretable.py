"""Methods of a loaded model that look for causes of its answers.

model.patch("The key [MASK] here.", "The keys [MASK] here.", answers=("is", "are")).effects["residual"]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from larvatus.core.text_inputs import checked_text
from larvatus.inference.interpret.patching import PatchMap, patch_pair
from larvatus.inference.model.encoder import EncoderModel


class InterpretableModel(EncoderModel):
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
