"""Semantic roles from sentences to frames: losses against naive loops, learning, decoding, saving, raw text."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.data.labelled.tables import Columns
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads.roles import FrameTargets, RolesConfig, SemanticRoles, gold_spans
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.nn.span_scorer import SpanIndex
from larvatus.models.objectives import MaskedLMConfig
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.predict import PredictOptions, TaskPredictor
from larvatus.tasks.registry import TASKS
from larvatus.tasks.roles.encode import encode_frames, encode_sentences
from larvatus.tasks.roles.examples import VERB, Frame, FramedSentence, RoleSpan
from larvatus.tasks.roles.labelling import label_frames, scored_arguments
from larvatus.tasks.roles.lexicon import PredicateLexicon
from larvatus.tasks.roles.task import RolesOptions, roles_config
from larvatus.tasks.roles.texts import ReadText
from larvatus.tasks.scoring import ScoringOptions, features_of, head_of, loss_of
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.tasks.trainer.save import save_result
from tests.tasks.roles.made_frames import WORDS, made_frames
from tests.tiny import make_tokenizer, save_model

TRAIN = made_frames()
PLAIN_COLUMNS = Columns()
ONE_BY_ONE = {"decoder": "viterbi", "one_by_one": True}
WINDOWS = WindowOptions(limit=32, truncate=False, overlap=None)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    """A tiny BERT of random weights whose vocabulary has the words of the made language."""
    tokenizer = make_tokenizer([*WORDS.split(), "*", "##s"])
    model = TransformerConfig(layers=2, hidden=32, heads=2, max_positions=32, init=0.1, dropout=0.0)
    network = Network.build(model, (MaskedLMConfig(),), tokenizer.size, 0).eval()
    return load_bundle(save_model(tmp_path_factory.mktemp("roles") / "model", network, tokenizer))


def config_of(**options) -> RolesConfig:
    return roles_config(TRAIN, RolesOptions(hidden=16, dropout=0.0, **options))


def new_model(bundle: Bundle, config: RolesConfig) -> Network:
    model = Network.build(bundle.model, (config,), bundle.tokenizer.size, 3).eval()
    with torch.no_grad():  # transitions of a new CRF are 0
        for parameter in head_of(model).parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return model


@torch.no_grad()
def naive_loss(head: SemanticRoles, h_WD: torch.Tensor, sentences: list[FramedSentence], rows: list[int]) -> float:
    """Predicates, senses and tags one by one, in float64; `rows` is the first word of each sentence."""
    config, total = head.config, 0.0
    pairs, classifier = head.pairs, head.classifier
    assert classifier is not None
    tags, lexicon = list(config.tags), PredicateLexicon.of(config)
    for sentence, begin in zip(sentences, rows, strict=True):
        predicates = {frame.predicate for frame in sentence.frames or ()}
        for word in range(len(sentence.words)):
            scores = head.predicate(h_WD[begin + word])
            total -= float(scores.log_softmax(-1)[int(word in predicates)])
        for frame in sentence.frames or ():
            h_f = h_WD[begin + frame.predicate]
            senses = head.sense(h_f)[list(lexicon.candidates(sentence.words[frame.predicate]))]
            names = [config.rolesets[n] for n in lexicon.candidates(sentence.words[frame.predicate])]
            total -= float(senses.log_softmax(-1)[names.index(frame.roleset)])
            of_word = ["O"] * len(sentence.words)
            for role, first, last in frame.arguments:
                of_word[first : last + 1] = [f"B-{role}", *[f"I-{role}"] * (last - first)]
            for word, tag in enumerate(of_word):
                a, c = pairs.words(h_WD[begin + word]).chunk(2)
                b, d = pairs.predicates(h_f).chunk(2)
                gap = word - frame.predicate
                step = 0 if gap == 0 else 1 + int(np.log2(abs(gap)))
                u = torch.nn.functional.gelu(a + b + pairs.distance.weight[step + (10 if gap < 0 else 0)] + c * d)
                total -= float(classifier(u).log_softmax(-1)[tags.index(tag)])
    return total


def test_the_loss_is_that_of_a_loop_over_words_and_predicates(bundle):
    config = config_of(decoder="viterbi")
    model = new_model(bundle, config).double().requires_grad_(False)
    data = encode_frames(bundle.tokenizer, TRAIN.examples[:7], config, WINDOWS)
    chosen = np.array([4, 1, 6])
    batch = on_device(data.batch(chosen), "cpu")
    head = head_of(model)
    h_WD = head.trunk(features_of(model, batch, head))
    sentences = [TRAIN.examples[n] for n in chosen]
    rows = edges(np.array([len(each.words) for each in sentences]))[:-1].tolist()
    loss = loss_of(model, batch, head)
    assert_close(float(loss.total), naive_loss(head, h_WD, sentences, rows), rtol=1e-9, atol=0)
    pairs = sum(len(each.words) * len(each.frames) for each in sentences)
    assert float(loss.count) == head.size(data.batch(chosen)) == sum(len(each.words) for each in sentences) + pairs


@pytest.mark.parametrize("options", [{"decoder": "crf"}, {"decoder": "spans"}, ONE_BY_ONE])
def test_microbatches_have_the_loss_of_the_whole_step(bundle, options):
    config = config_of(**options)
    model = new_model(bundle, config).double().requires_grad_(False)
    data = encode_frames(bundle.tokenizer, TRAIN.examples[:9], config, WINDOWS)
    whole = data.batch(np.arange(9))
    parts = list(whole.split(30))
    assert len(parts) > 1
    head = head_of(model)
    total = sum(float(loss_of(model, on_device(part, "cpu"), head).total) for part in parts)
    assert_close(total, float(loss_of(model, on_device(whole, "cpu"), head).total), rtol=1e-9, atol=0)
    assert sum(head.size(part) for part in parts) == head.size(whole)
    joined = TrainingBatch.join(parts)
    for name, array in vars(whole.targets[FrameTargets]).items():
        assert np.array_equal(array, getattr(joined.targets[FrameTargets], name)), name


@pytest.mark.parametrize("options", [{"decoder": "crf"}, {"decoder": "spans"}, ONE_BY_ONE])
def test_sentences_without_predicates_are_trained_and_scored(bundle, options):
    bare = FramedSentence(("ann", "and", "bob"), (), Place("bare.jsonl", 1))
    train, dev = Dataset((*TRAIN.examples[:3], bare), "train.jsonl"), Dataset((bare,), "bare.jsonl")
    chosen = RolesOptions(hidden=8, dropout=0.0, **options)
    config = TrainConfig(epochs=1, batch=1, rate=1e-3, evaluations=1)
    result = finetune("roles", bundle, train, dev, FineTuneArguments(config=config, options=chosen))
    assert result.scores.values["argument-f1"] == 0
    evaluated = TASKS["roles"].evaluate(result.bundle, dev, EvaluationOptions(samples=5))
    assert evaluated.counts.frames == 0


def test_gold_spans_are_those_of_the_tags():
    tags = torch.tensor(
        [1, 2, 0, 3, 3, 4, 4, 0, 1]
    )  # role 0 over two rows, role 1 over one and over three; next: role 0
    spans = SpanIndex.of(torch.tensor([8, 1]), longest=3)
    gold = gold_spans(tags, spans)
    found = {
        (int(spans.first_M[n]), int(spans.last_M[n])): int(gold[n]) for n in torch.nonzero(gold).squeeze(-1).tolist()
    }
    assert found == {(0, 1): 1, (3, 3): 2, (4, 6): 2, (8, 8): 1}
    short = SpanIndex.of(torch.tensor([8, 1]), longest=2)
    assert int((gold_spans(tags, short) > 0).sum()) == 3  # one is too long


def tune(bundle: Bundle, options: RolesOptions, epochs: int = 8) -> FineTuneResult:
    config = TrainConfig(epochs=epochs, batch=8, rate=3e-3, evaluations=1)
    return finetune("roles", bundle, TRAIN, TRAIN, FineTuneArguments(config=config, options=options))


@pytest.fixture(scope="module")
def tuned(bundle) -> FineTuneResult:
    return tune(bundle, RolesOptions(hidden=32, dropout=0.0))


def test_a_tiny_model_learns_predicates_senses_and_arguments(tuned):
    values = tuned.scores.values
    assert tuned.scores.validation_loss < 0.2
    assert values["argument-f1"] > 0.95
    assert values["found-argument-f1"] > 0.95
    assert values["predicate-f1"] > 0.95
    assert values["sense-accuracy"] == 1


@pytest.mark.parametrize("options", [{"decoder": "spans"}, ONE_BY_ONE])
def test_other_decoders_learn_too(bundle, options):
    result = tune(bundle, RolesOptions(hidden=32, dropout=0.0, **options))
    assert result.scores.values["found-argument-f1"] > 0.9


def test_a_saved_model_gives_the_same_frames_one_by_one_and_in_a_batch(tuned, tmp_path):
    (tmp_path / "roles").mkdir()
    save_result(tmp_path / "roles", tuned, parent="tiny")
    texts = ["big cat pushed red dog . ann saw bob and bob pushed ann", "ann gave bob to ann .", "dog"]
    before = [each.to_dict() for each in TaskPredictor(tuned.bundle).predict(texts)]
    saved = load_bundle(tmp_path / "roles")
    assert [each.to_dict() for each in TaskPredictor(saved).predict(texts)] == before
    single = [next(TaskPredictor(saved).predict([text])).to_dict() for text in texts]
    plain = [[(f["roleset"], [a["text"] for a in f["arguments"]]) for f in each["frames"]] for each in before]
    assert plain == [[(f["roleset"], [a["text"] for a in f["arguments"]]) for f in each["frames"]] for each in single]
    assert plain[1] == [("give.01", ["ann", "bob", "to ann"])]


def test_frames_of_raw_text_point_at_its_characters(tuned):
    text = "  Big cat   pushed red dog.  Ann saw  bob\tand bob pushed ann"
    (answer,) = TaskPredictor(tuned.bundle).predict([text])
    assert len(answer.frames) >= 3
    for frame in answer.frames:
        assert text[frame.predicate.start : frame.predicate.end] == frame.predicate.text
        for argument in frame.arguments:
            assert text[argument.start : argument.end] == argument.text
    first = answer.frames[0]
    assert (first.predicate.text, first.roleset) == ("pushed", "push.01")
    assert [(each.role, each.text, each.start) for each in first.arguments] == [
        ("ARG0", "Big cat", 2),
        ("ARG1", "red dog", 19),
    ]
    rows = answer.to_dicts()
    assert rows[0]["argument"] == "Big cat"
    assert rows[0]["predicate_start"] == first.predicate.start
    assert str(answer).splitlines()[1].split() == ["pushed", "push.01", "ARG0", "Big", "cat", "2–9"]
    assert "".join(piece.text for piece in answer.pieces()).startswith("push.01(ARG0: Big cat, ARG1: red dog)")
    assert answer.props().splitlines()[0].split("\t")[:4] == ["Big", "-", "-", "(ARG0*"]
    assert answer.records()[0]["frames"][0]["pred"] == 2
    json.dumps(answer.to_dict())


def test_raw_text_is_cut_into_words_as_the_training_set_cuts_them():
    """A training set of words shows where touching words are cut: in clitics and before marks, not in "e-mail"."""
    verbs = ("did", "could", "would", "has")
    rows = [
        FramedSentence(("Bob", verb, "n't", "answer", "Ann", "'s", "e-mail", "."), None, Place("made", n))
        for n, verb in enumerate(verbs * 2)
    ]
    config = roles_config(Dataset((*TRAIN.examples, *rows), "made"), RolesOptions())
    text = "Bob hasn't sent Ann's e-mail. \"You\", she said."
    read = ReadText.of(TextExample(text, None, None, Place("text", 1)), "en", config.rules)
    assert read.words[0] == ("Bob", "has", "n't", "sent", "Ann", "'s", "e-mail", ".")
    assert [text[a:b] for places in read.places for a, b in places] == [word for words in read.words for word in words]
    plain = ReadText.of(TextExample(text, None, None, Place("text", 1)), "en")
    assert plain.words[0] == ("Bob", "hasn", "'", "t", "sent", "Ann", "'", "s", "e", "-", "mail", ".")


def test_given_predicates_are_the_only_ones(tuned, tmp_path):
    path = tmp_path / "given.jsonl"
    path.write_text(
        json.dumps(
            {
                "words": ["ann", "saw", "bob", "and", "bob", "pushed", "ann"],
                "frames": [{"pred": 5, "roleset": "x", "args": []}],
            }
        )
    )
    said: list[str] = []
    task = TASKS["roles"]
    (example,) = task.read_plain(str(path), PLAIN_COLUMNS, None, said.append)
    (answer,) = task.predict(tuned.bundle, [example], PredictOptions(), ScoringOptions())
    assert [frame.predicate.text for frame in answer.frames] == ["pushed"]
    assert said == [f"{path}: predicates are given"]


def test_evaluation_has_intervals_roles_and_both_kinds_of_predicates(tuned):
    strange = FramedSentence(
        ("ann", "saw"), (Frame(1, "see.09", (RoleSpan("ARGM-XXX", 0, 0),)),), Place("made.jsonl", 99)
    )
    data = Dataset((*TRAIN.examples[:6], strange), "made.jsonl")
    result = TASKS["roles"].evaluate(tuned.bundle, data, EvaluationOptions(samples=20))
    assert result.headline == "argument-f1"
    assert result.metrics["argument-f1"].low <= result.metrics["argument-f1"].value < 1
    assert result.by_role["ARG0"].support == 8
    assert result.unknown == ("ARGM-XXX",)
    assert any("ARGM-XXX" in note for note in result.notes)
    assert "intervals are over sentences" in str(result)
    json.dumps(result.to_dict())
    with pytest.raises(DataError, match="ARGM-XXX"):
        TASKS["roles"].evaluate(tuned.bundle, data, EvaluationOptions(samples=20, strict=True))


def test_words_beyond_the_reach_of_a_predicate_are_not_scored(bundle):
    """Memory and time grow with the words, however long a sentence is."""
    config = config_of(decoder="crf", reach=3)
    words = ("ann", "bob", "cat", "dog") * 3_000
    frames = tuple(
        Frame(n, "see.01", (RoleSpan(VERB, n, n), RoleSpan("ARG0", n - 9, n - 9))) for n in range(10, 12_000, 100)
    )
    long = FramedSentence(words, frames, Place("made.jsonl", 1))
    data = encode_frames(bundle.tokenizer, [long], config, WINDOWS)
    targets = data.targets
    assert len(targets.tags) == 7 * len(frames)
    assert data.lost == (len(frames), 2 * len(frames))
    assert "never found" in data.notes()[0]
    assert int(targets.sequences[0]) > 100
    assert data.batch(np.array([0])).tokens.groups.tolist() == targets.sequences.tolist()


@pytest.mark.parametrize("decoder", ["crf", "spans"])
def test_predicates_in_portions_have_the_frames_of_all_at_once(bundle, decoder, monkeypatch):
    config = config_of(decoder=decoder)
    model = new_model(bundle, config)
    words = [each.words for each in TRAIN.examples]
    given = [[0, 2, 3] for _ in words]

    def frames():
        return label_frames(
            model, encode_sentences(bundle.tokenizer, words, WINDOWS), scoring=ScoringOptions(), given=given
        ).frames

    whole = frames()
    monkeypatch.setattr("larvatus.tasks.roles.labelling.ROWS", {"cpu": 25})
    for before, after in zip(whole, frames(), strict=True):
        assert [(f.predicate, f.roleset, f.arguments) for f in before] == [
            (f.predicate, f.roleset, f.arguments) for f in after
        ]


def test_a_sentence_longer_than_a_window_has_the_arguments_of_any_window(tuned):
    """Windows are read apart, and predicates are scored with words of all of them."""
    words = ("ann saw bob and " * 20 + "bob pushed ann .").split()
    read = encode_sentences(tuned.bundle.tokenizer, [words], WINDOWS)
    found = label_frames(tuned.bundle.network, read, scoring=ScoringOptions(), given=[[81]])
    assert int(found.sequences.parts[0]) > 2
    (last,) = [frame for frame in found.frames[0] if frame.predicate == 81]
    assert last.roleset == "push.01"
    with pytest.raises(UsageError, match="reads whole sentences"):
        encode_sentences(tuned.bundle.tokenizer, [words], dataclasses.replace(WINDOWS, truncate=True), marks=[[1]])


def test_arguments_of_spans_share_no_word_and_the_predicate_is_in_v():
    config = msgspec.structs.replace(config_of(decoder="spans"), labels=("ARG0", "V"))
    chance = np.random.default_rng(0)
    index = SpanIndex.of(torch.tensor([5, 4]), longest=3)
    bounds = index.first_M.numpy(), index.last_M.numpy()
    for _ in range(50):
        scores = chance.normal(size=(index.count, 3)).astype(np.float32)
        frames = scored_arguments(config, scores, bounds, np.array([5, 4]), np.array([2, 0]))
        for arguments, place, length in zip(frames, (2, 0), (5, 4), strict=True):
            order = sorted(arguments, key=lambda argument: argument[1])
            assert all(a[2] < b[1] for a, b in pairwise(order))
            assert all(0 <= first <= last < length for _, first, last, _ in order)
            assert {role for role, first, last, _ in order if first <= place <= last} <= {"V"}


def test_a_form_has_the_rolesets_of_its_lemmas():
    config = RolesConfig(
        labels=("V",),
        rolesets=("carry.01", "carry.02", "find.01", "found.01", "try.01"),
        forms={"carried": ("carry",), "tries": ("try",), "found": ("find", "found"), "talked": ("talk",)},
    )
    lexicon = PredicateLexicon.of(config)
    assert lexicon.candidates("CARRIED") == (0, 1)
    assert lexicon.candidates("found") == (2, 3)
    assert lexicon.candidates("carries") == (0, 1)
    assert lexicon.candidates("try") == (4,)
    assert lexicon.candidates("walked") == ()
    assert lexicon.guess("walked") == "walk.01"
    assert lexicon.guess("worried") == "worry.01"


def test_inputs_that_the_model_cannot_label_are_refused(tuned):
    task = TASKS["roles"]
    with pytest.raises(DataError, match="is a pair"):
        task.predict(tuned.bundle, [TextExample("a", "b", None, Place("x", 1))], PredictOptions(), ScoringOptions())
    (empty, words) = task.predict(
        tuned.bundle,
        [TextExample("  ", None, None, Place("x", 1)), TaggedExample(("ann", "saw"), None, Place("x", 2))],
        PredictOptions(),
        ScoringOptions(),
    )
    assert empty.frames == ()
    assert str(empty) == "no predicate"
    assert words.text == "ann saw"
    bare = Dataset((dataclasses.replace(TRAIN.examples[0], frames=()),), "made.jsonl")
    with pytest.raises(DataError, match="no predicate has an argument"):
        roles_config(bare, RolesOptions())
    with pytest.raises(UsageError, match="--metric accuracy does not score this task"):
        finetune("roles", tuned.bundle, TRAIN, TRAIN, FineTuneArguments(metric="accuracy"))
