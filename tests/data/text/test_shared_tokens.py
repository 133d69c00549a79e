"""Tokens of two vocabularies: found again under other marks, and never under the wrong ones."""

import numpy as np
import pytest

from larvatus.core.errors import UsageError
from larvatus.data.text.shared_tokens import TokenForm, longest_matches, old_subwords, shared_tokens, token_form
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary

WORDS = "walking walked walker talking talked talker, the river was wide; the rivers were wider. "
TEXTS = [WORDS * 5, "The Walker talked. " * 5]
CONFIGS = {
    "wordpiece": WordPieceConfig(size=90),
    "cased": WordPieceConfig(size=100, lowercase=False),
    "unigram": UnigramConfig(size=70),
    "byte-bpe": ByteBPEConfig(size=330),
    "bpe": BPEConfig(size=90),
}


@pytest.fixture(scope="module")
def kinds():
    return {name: train_vocabulary(TEXTS, config, allow_smaller=True) for name, config in CONFIGS.items()}


@pytest.mark.parametrize(
    ("token", "style", "form"),
    [
        ("##ing", "##", ("ing", False)),
        ("the", "##", ("the", True)),
        ("▁the", "▁", ("the", True)),
        ("ing", "▁", ("ing", False)),
        ("Ġthe", "Ġ", ("the", True)),
        ("the", "Ġ", ("the", False)),
        ("ĠÃ¼ber", "Ġ", ("über", True)),
        ("the</w>", "</w>", ("the", None)),
        ("▁", "▁", None),
        ("Ã", "Ġ", None),  # half a character
    ],
)
def test_the_form_of_a_token_has_no_marks(token, style, form):
    assert token_form(token, style) == (None if form is None else TokenForm(*form))


@pytest.mark.parametrize("new", CONFIGS)
@pytest.mark.parametrize("old", CONFIGS)
def test_every_shared_token_has_the_text_of_the_old_one(kinds, new, old):
    """By a plain loop over both vocabularies: same text (folded where the old one folds case), compatible openings."""
    here, there = kinds[new], kinds[old]
    shared = shared_tokens(here, there)
    forms, old_forms = ([token_form(t, k.style) for t in k.tokens] for k in (here, there))
    words = 0
    for number, known in enumerate(shared.tolist()):
        if number in here.special_ids or known < 0:
            continue
        a, b = forms[number], old_forms[known]
        if a is None or b is None:  # bytes that are no character by themselves
            assert here.tokens[number] == there.tokens[known]
            continue
        assert b.text in (a.text, a.text.lower())
        if a.text.isalpha() and None not in (a.opens, b.opens):
            assert a.opens == b.opens
            words += 1
    exact = {form for form in old_forms if form is not None}
    missed = [here.tokens[n] for n, form in enumerate(forms) if form in exact and shared[n] < 0]
    assert set(missed) <= {here.tokens[n] for n in here.special_ids}
    assert words > 10 or "bpe" in (new, old)


def test_roles_of_special_tokens_correspond(kinds):
    shared = shared_tokens(kinds["unigram"], kinds["wordpiece"])
    pairs = {"<s>": "[CLS]", "</s>": "[SEP]", "<mask>": "[MASK]", "<pad>": "[PAD]", "<unk>": "[UNK]"}
    for new, old in pairs.items():
        assert shared[kinds["unigram"].id(new)] == kinds["wordpiece"].id(old)


def test_punctuation_is_shared_whether_or_not_it_opens_a_word(kinds):
    for new in CONFIGS:
        for old in CONFIGS:
            names = [each for each in (",", ",</w>") if kinds[new].id(each) is not None]
            assert (shared_tokens(kinds[new], kinds[old])[[kinds[new].id(each) for each in names]] >= 0).all()


def test_a_vocabulary_shares_all_tokens_with_itself(kinds):
    for tokenizer in kinds.values():
        assert shared_tokens(tokenizer, tokenizer).tolist() == list(range(tokenizer.size))


@pytest.mark.parametrize("old", CONFIGS)
def test_old_subwords_spell_the_text_of_the_token(kinds, old):
    whole = 0
    for new in CONFIGS:
        parts = old_subwords(kinds[new], kinds[old])
        assert len(parts) == kinds[new].size
        style = kinds[old].style
        for number, ids in enumerate(parts):
            form = token_form(kinds[new].tokens[number], kinds[new].style)
            if number in kinds[new].special_ids:
                assert ids == ()
            elif form is not None and form.text.isascii() and form.text.isalpha() and ids:
                forms = [token_form(kinds[old].tokens[i], style) for i in ids]
                spelled = "".join(each.text for each in forms if each is not None)
                letters = iter(form.text.lower())  # one that the old vocabulary lacks in this place is skipped
                assert all(char in letters for char in spelled.lower())
                whole += spelled.lower() == form.text.lower()
                if form.opens is False and style in ("##", "Ġ", "▁"):
                    assert not any(each.opens for each in forms if each is not None)
    assert whole > 80


def test_greedy_longest_match_skips_what_the_table_lacks():
    assert longest_matches("xabcab", {"ab": 0, "abc": 1, "a": 2}) == (1, 0)
    assert longest_matches("xyz", {"ab": 0}) == ()


def test_characters_are_refused(tokenizers):
    with pytest.raises(UsageError, match="vocabulary of characters has no tokens to share"):
        shared_tokens(tokenizers["characters"], tokenizers["wordpiece"])
    assert np.array_equal(
        shared_tokens(tokenizers["byte-bpe"], tokenizers["byte-bpe"]), np.arange(tokenizers["byte-bpe"].size)
    )
