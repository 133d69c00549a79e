"""The recipe: a published system as tokenizer × packing × corruption × model × objectives × phases.

Each component's settings are in its own file; this file only composes them. A recipe holds the science. Device,
precision, compilation, microbatch and workers are the runtime: given on the command line, they must not change the
result.

    recipe = read_recipe("bert", size="tiny", settings=["model.layers=3"])

How a published system was trained: optimizer, schedule, phases. The settings only; `train/` carries them out.

[optimizer]                        [[phases]]
rate = 1e-4                        share = 0.9
decay = 0.01                       length = 128
"""

from __future__ import annotations

import itertools
from typing import Any, Literal, NamedTuple, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import ReplacedTokens, TextTargets, text_target_kinds
from larvatus.core.ranges import (
    Beta,
    Clip,
    CountOrNone,
    Decay,
    LearningRate,
    Length,
    PositiveEpsilon,
    PositiveShare,
    Share,
    Size,
    Steps,
)
from larvatus.core.settings import Settings
from larvatus.data.corpus.mixture import MixtureConfig
from larvatus.data.corpus.packing import PackingConfig
from larvatus.data.corruption import CorruptionConfig, at_place
from larvatus.data.text.template import SequenceTemplate
from larvatus.data.text.vocabularies import TokenizerConfig, template_of
from larvatus.data.text.vocabularies.characters import CharactersConfig
from larvatus.models.network import ObjectiveConfig, generator_config
from larvatus.models.nn.elmo import ElmoConfig
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.objectives.linear_cross_entropy import RestrictsModel, WordObjective


class MuonSettings(NamedTuple):
    """Muon's settings for the matrices of blocks, unless the recipe sets others (Jordan et al. 2024)."""

    rate: float = 0.02
    decay: float = 0.05
    momentum: float = 0.95


class OptimizerConfig(Settings, path="optimizer.", error=RecipeError):
    """AdamW (Loshchilov & Hutter 2019), LAMB (You et al. 2020), Adafactor or Muon; norms and biases are not decayed."""

    rate: LearningRate = 1e-4
    """Peak learning rate."""
    beta1: Beta = 0.9
    """Decay of the mean gradient; 0: only the current gradient."""
    beta2: Beta = 0.999
    """Decay of the mean square."""
    epsilon: PositiveEpsilon = 1e-6
    """Added to the root of the mean square; above 0, or a weight without gradients would be divided by 0."""
    decay: Decay = 0.01
    """Decoupled weight decay of matrices; 0: none."""
    clip: Clip = 1.0
    """Largest norm of the whole gradient; 0 switches clipping off."""
    type: Literal["adamw", "lamb", "adafactor", "muon"] = "adamw"
    """lamb: each matrix moves in proportion to its own norm, for batches of thousands of sequences. adafactor: second
    moments by rows and columns, steps in proportion to the size of the weights (T5); beta2 and epsilon are then as
    published. muon: the matrices of blocks take orthogonal steps, with a rate and a decay of their own (below);
    embeddings, heads, norms and biases use AdamW with the settings above.
    """
    muon_rate: LearningRate | UnsetType = UNSET
    """Peak rate of muon's matrices, over the same schedule; unset: 0.02."""
    muon_decay: Decay | UnsetType = UNSET
    """Their decay, times their rate; unset: 0.05."""
    momentum: Beta | UnsetType = UNSET
    """Decay of their mean gradient, with Nesterov's look-ahead; unset: 0.95."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type == "muon":  # filled in, so that a saved recipe records what a model was trained with
            for name, value in zip(("muon_rate", "muon_decay", "momentum"), self.hidden, strict=True):
                force_setattr(self, name, value)

    @property
    def hidden(self) -> MuonSettings:
        """Muon's settings, with unset ones filled in."""
        given = {"rate": self.muon_rate, "decay": self.muon_decay, "momentum": self.momentum}
        return MuonSettings(**{name: value for name, value in given.items() if value is not UNSET})


class ScheduleConfig(Settings, path="schedule.", error=RecipeError):
    """Warm-up to the peak rate, then decay."""

    type: Literal["linear", "cosine", "trapezoid", "constant", "inverse-square-root"] = "linear"
    """inverse-square-root: the peak until the warm-up is over, then peak × √(warm-up / step) (T5)."""
    warmup: Share = 0.01
    """Share of all steps over which the rate rises from 0 (BERT: 10,000 of 1,000,000)."""
    warmup_floor: CountOrNone = 0
    """Fewest steps of warm-up in a short run, but never more than a quarter of it. A share of the run leaves one of 300
    steps with six, after which the moments of Adam are still noise. No warm-up stays none.
    """
    cooldown: Share = 0.1
    """Share of all steps over which a trapezoid decays."""
    floor: Share = 0.0
    """Final rate, as a share of the peak."""
    steps: Steps = 1_000_000
    """Steps as published; `--steps`, `--minutes` or `--epochs` override it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type == "trapezoid" and self.warmup + self.cooldown > 1:
            raise RecipeError(
                f"schedule.warmup = {self.warmup:g} and schedule.cooldown = {self.cooldown:g} exceed the whole run; "
                "lower one of them"
            )

    def warmup_steps(self, steps: int) -> int:
        """Steps of warm-up in a run of this many steps.

        >>> ScheduleConfig(warmup=0.02, warmup_floor=100).warmup_steps(300)
        75
        """
        if not self.warmup:
            return 0
        return max(1, round(self.warmup * steps), min(self.warmup_floor, steps // 4))


class Phase(Settings, path="phases.", error=RecipeError):
    """A part of training at one sequence length."""

    length: Length = 512
    """Longest sequence, including special tokens."""
    share: PositiveShare = 1.0
    """Share of all steps."""


def steps_of_phases(phases: tuple[Phase, ...], steps: int) -> list[int]:
    """Whole steps for each phase, summing to `steps`: boundaries are rounded, so no step is lost.

    >>> steps_of_phases((Phase(length=128, share=0.9), Phase(length=512, share=0.1)), 15)
    [14, 1]
    """
    edges, passed = [0], 0.0
    for phase in phases[:-1]:
        passed += phase.share
        edges.append(min(round(passed * steps + 1e-9), steps))
    edges.append(steps)
    return [after - before for before, after in itertools.pairwise(edges)]


SIZES = {  # layers, hidden, heads (Turc et al. 2019, and BERT's own two)
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


class Recipe(Settings, error=RecipeError):
    """A complete system, checked: a valid recipe can be trained."""

    name: str
    about: str = ""
    """One line: the idea and the paper."""
    batch: Size = 256
    """Sequences per step. Ragged batches are cut by tokens: a step holds `batch × length` of them."""
    tokenizer: TokenizerConfig
    packing: PackingConfig
    corruption: CorruptionConfig | None = None
    """How text is corrupted; a recipe without it trains on unchanged text (`corruption = "none"` removes a base's)."""
    model: EncoderConfig
    objectives: tuple[ObjectiveConfig, ...]
    mixture: MixtureConfig = MixtureConfig()
    """How often each language is sampled, if there are several; used for vocabulary and training alike."""
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    phases: tuple[Phase, ...] = (Phase(),)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_objectives(self)
        _check_characters(self)
        _check_optimizer(self)
        _check_phases(self)

    @property
    def from_text(self) -> tuple[type[TextTargets], ...]:
        """The targets that the loader derives from the text itself."""
        return text_target_kinds(self.objectives)

    @property
    def words_per_token(self) -> float:
        """Words that an objective is expected to predict per token of text; the largest of several."""
        return self._words_per_token(0.5)  # half way: the mean, if the share changes over a run

    @property
    def most_words_per_token(self) -> float:
        """The same at the end of a run at which more is hidden."""
        return max(self._words_per_token(0.0), self._words_per_token(1.0))

    def _words_per_token(self, place: float) -> float:
        corruption = at_place(self.corruption, place)
        predicting = (objective for objective in self.objectives if isinstance(objective, WordObjective))
        return max((objective.words_per_token(corruption) for objective in predicting), default=0.0)


def _check_objectives(recipe: Recipe) -> None:
    """Every objective must get the targets it needs from the packing or the corruption."""
    if not recipe.objectives:
        raise RecipeError('a recipe needs an objective; add [[objectives]] with type = "masked-lm"')
    tags = [objective.__struct_config__.tag for objective in recipe.objectives]
    if len(set(tags)) < len(tags):
        raise RecipeError(f"an objective is named twice: {', '.join(map(str, tags))}")
    if not any(objective.weight for objective in recipe.objectives):
        raise RecipeError("all objectives have weight 0, so nothing would be learned; set the weight of one above 0")
    given = {*recipe.packing.gives, *(recipe.corruption.gives if recipe.corruption is not None else ())}
    for objective in recipe.objectives:
        if isinstance(objective, RestrictsModel):
            objective.check(recipe.model)
        if issubclass(objective.needs, TextTargets):
            _reject_corruption(recipe, objective)
        elif objective.needs not in given:
            raise RecipeError(_missing_targets(recipe, objective))
    needed = {objective.needs for objective in recipe.objectives}
    if generator_config(recipe.model, recipe.objectives) is None and ReplacedTokens in needed:
        raise RecipeError("replaced-tokens needs a generator; set objectives.replaced-tokens.generator = 0.25")
    highest = _sequence_template(recipe).highest_segment  # RoBERTa separates a pair only by its two separators
    if highest > 0 and recipe.model.segments <= highest:
        raise RecipeError(
            f'packing "{_tag(recipe.packing)}" gives two segments, but the model has embeddings for '
            f"{recipe.model.segments}; set model.segments = 2"
        )


def _check_characters(recipe: Recipe) -> None:
    """An encoder that reads words by their characters needs a vocabulary of characters."""
    if isinstance(recipe.model, ElmoConfig) and not isinstance(recipe.tokenizer, CharactersConfig):
        raise RecipeError(
            f'model.type = "elmo" reads words by their characters, but the vocabulary is "{_tag(recipe.tokenizer)}"; '
            'set tokenizer.type = "characters"'
        )


def _check_optimizer(recipe: Recipe) -> None:
    """An optimizer of the matrices of blocks needs blocks."""
    if recipe.optimizer.type == "muon" and isinstance(recipe.model, ElmoConfig):
        raise RecipeError(
            'optimizer.type = "muon" is for the matrices of blocks, and model.type = "elmo" has none; '
            'set optimizer.type = "adamw"'
        )


def _reject_corruption(recipe: Recipe, objective: ObjectiveConfig) -> None:
    if recipe.corruption is not None:
        raise RecipeError(
            f'{_tag(objective)} predicts the text as it is, but corruption "{_tag(recipe.corruption)}" changes it; '
            'set corruption = "none"'
        )


def _missing_targets(recipe: Recipe, objective: ObjectiveConfig) -> str:
    """What the objective needs, which part does not give it, and which setting would."""
    needs: Any = objective.needs
    for part, union in (("packing", PackingConfig), ("corruption", CorruptionConfig)):
        for option in get_args(union):
            if needs in option.gives:
                config = getattr(recipe, part)
                why = f"there is no {part}" if config is None else f'{part} "{_tag(config)}" gives none'
                return (
                    f"{_tag(objective)} needs {needs.what}, but {why}; "
                    f'set {part}.type = "{option.__struct_config__.tag}"'
                )
    return f"{_tag(objective)} needs {needs.what}, which no packing or corruption gives"


def _sequence_template(recipe: Recipe) -> SequenceTemplate:
    """The template of the recipe's vocabulary for the units of its packing."""
    return recipe.packing.sequence_template(template_of(recipe.tokenizer))


def _tag(config: Struct) -> str:
    return str(config.__struct_config__.tag)


def _check_phases(recipe: Recipe) -> None:
    if not recipe.phases:
        raise RecipeError("a recipe needs a phase; add [[phases]] with length = 128")
    total = sum(phase.share for phase in recipe.phases)
    if abs(total - 1) > 1e-6:
        raise RecipeError(f"phases.share must sum to 1, not {total:g}")
    for phase in recipe.phases:
        if recipe.corruption is not None:
            recipe.corruption.check(_sequence_template(recipe).text_length(phase.length))
    longest = max(phase.length for phase in recipe.phases)
    if longest > recipe.model.max_positions:
        raise RecipeError(
            f"a phase of length {longest} does not fit model.max_positions = {recipe.model.max_positions}; "
            f"set model.max_positions = {longest} or shorten the phase"
        )
