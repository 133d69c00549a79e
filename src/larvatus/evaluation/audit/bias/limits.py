"""Limits of the sets of the bias audit, printed with every result.

The points are those of Blodgett et al. 2021 (*Stereotyping Norwegian salmon*), Gonen & Goldberg 2019 (*Lipstick on a
pig*) and Goldfarb-Tarrant et al. 2021 (*Intrinsic bias metrics do not correlate with application bias*).
"""

from __future__ import annotations

NO_AUL = "aul is not defined for this model: it never sees the token that it is asked for"
"""Note for XLNet."""
GENERAL = (
    (
        "No figure here says that a model is fair: 50%, 0 or p > 0.05 can come of few examples, of a weak model "
        "that prefers nothing, or of biases that cancel out."
    ),
    (
        "Bias of a pretrained model does not tell how a model fine-tuned from it decides (Goldfarb-Tarrant et al. "
        "2021); audit the model that is used, on the data it is used on (--test)."
    ),
)
"""Limits of the whole audit."""

CROWS_PAIRS = (
    (
        "CrowS-Pairs holds stereotypes known in the United States, in English, written by crowd workers; many "
        "pairs are unclear, ungrammatical, change more than the group, or set unlike groups against each other "
        "(Blodgett et al. 2021)."
    ),
    (
        "It sees which of two sentences a model prefers, not harm, not what the model writes or decides, and no "
        "group that is not in it."
    ),
)
STEREOSET = (
    (
        "StereoSet's sentences were written by crowd workers in the United States; many state no stereotype, or "
        "one that does no harm, and anti-stereotypes are often no counterpart (Blodgett et al. 2021)."
    ),
    "icat joins a model's skill (lms) with its preference (ss): look at both, never at icat alone.",
)
WINOBIAS = (
    (
        "WinoBias knows two genders and 40 occupations with the shares that US labour statistics gave them; a "
        "blank asks for the pronoun, not whom the model takes it to refer to."
    ),
)
TEMPLATES = (
    (
        "Templates measure these sentences with these words: other wordings can give other signs; add sentences, "
        "not only words."
    ),
)
ASSOCIATIONS = (
    "Cosines tell which words stand in the same places, not which stand beside each other; a sign may mislead.",
    (
        "Association tests find only what their word lists ask for; no association is no proof of absence (May et "
        "al. 2019), and vectors can be associated where answers are not (Gonen & Goldberg 2019)."
    ),
)
SWAPS = (
    (
        "Swaps find decisions that change with the group words alone; they see neither what goes with a group "
        "without its words (names, topics, dialect) nor errors that hit one group's texts more often."
    ),
    (
        "A swapped sentence can be wrong about the world (a bearded woman) or ungrammatical (her: him or his): "
        "read the changed examples."
    ),
)
