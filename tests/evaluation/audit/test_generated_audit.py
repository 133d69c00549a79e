"""Audits of models that write: extraction and toxicity against the generation commands, and against what is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers
from torch.optim import AdamW

import larvatus as lv
from larvatus.core.batch import TokenBatch
from larvatus.core.rng import stream
from larvatus.data.corpus.canaries import draw_canaries, write_canaries
from larvatus.data.text.special_tokens import sentinel_name
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.audit.leaks.extraction import count_verbatim_tokens
from larvatus.evaluation.audit.toxicity.generated import NUCLEUS
from larvatus.interfaces.cli.main import run
from larvatus.models.generation.generator import InfillPrompts, require_generator
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig
from larvatus.models.objectives import CausalLMConfig, DenoisingConfig
from tests.tiny import save_model

SYLLABLES = [a + b for a in "bdfgklmn" for b in "aeiou"]
KINDS = {
    "gpt": (CausalTransformerConfig(layers=1, hidden=64, heads=2, max_positions=64), (CausalLMConfig(),)),
    "t5": (EncoderDecoderConfig(layers=1, hidden=64, heads=2, max_positions=64, dropout=0.0), (DenoisingConfig(),)),
}
KNOWN = 0.06
"""Loss at which a text is known by heart."""
Place = tuple[str, str, str]
"""What precedes a place of a text, what stands there, and what follows; the last is not read by a gpt."""


@pytest.fixture(scope="module")
def spelling() -> Tokenizer:
    """Syllables, digits and a few sentinels: one token a syllable."""
    names = [sentinel_name(number) for number in range(3)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *names]
    whole = ["the", "code", "of", "is", ".", *SYLLABLES, *"abcdefghijklmnopqrstuvwxyz", *"0123456789"]
    tokens = list(dict.fromkeys([*special, *whole, *(f"##{piece}" for piece in whole[5:])]))
    library = Library(models.WordPiece({token: id for id, token in enumerate(tokens)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(special)
    return Tokenizer.from_library(library)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spelling: Tokenizer) -> Callable[..., lv.Model]:
    """A function that makes a loaded model which knows by heart what stands at places; without places, a fresh one."""

    def make(kind: str, places: list[Place] | None = None, steps: int = 120) -> lv.Model:
        config, objectives = KINDS[kind]
        network = Network.build(config, objectives, spelling.size, 0)
        if places:
            learn(network, spelling, places, steps)
        folder = tmp_path_factory.mktemp("writers") / kind
        save_model(folder, network.eval(), spelling, objectives)
        return lv.load(folder, device="cpu")

    return make


def learn(network: Network, spelling: Tokenizer, places: list[Place], steps: int) -> None:
    generator, asking = require_generator(network), InfillPrompts.of(network, spelling)
    ids = [[np.asarray(spelling.encode(part).ids, np.int64) for part in place] for place in places]
    read = [asking.ids(before, after).tolist() for before, _, after in ids]
    ending = [spelling.id(sentinel_name(1))] if asking.closed else []
    wanted = [[*asking.opening.tolist(), *here.tolist(), *ending] for _, here, _ in ids]
    prompts, answers = (on_device(TokenBatch.of(texts), "cpu") for texts in (read, wanted))
    optimizer = AdamW(network.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = F.cross_entropy(generator.head(generator.encoder.continuation_states(prompts, answers)), answers.ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < KNOWN:
            break


def documents(count: int, purpose: str) -> list[str]:
    """Made-up words of two syllables, which are two tokens, in random order: no document tells of another."""
    random = stream(1, purpose)
    return [" ".join("".join(random.choice(SYLLABLES, 2)) for _ in range(12)) for _ in range(count)]


def split(text: str, words: int) -> Place:
    parts = text.split()
    return " ".join(parts[:words]), " ".join(parts[words:]), ""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Members, held-out documents, and a canary that was planted among a few."""
    folder = tmp_path_factory.mktemp("texts")
    for name, purpose in (("in", "members"), ("out", "others")):
        lines = (json.dumps({"text": text}) + "\n" for text in documents(12, purpose))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    write_canaries(folder, draw_canaries(4, repeats=(0, 8), digits=2))
    return folder


@pytest.fixture(scope="module", params=["gpt", "t5"])
def pair_of_models(request: pytest.FixtureRequest, made, texts: Path) -> tuple[lv.Model, lv.Model]:
    """One that knows members and planted canaries by heart, and a fresh one."""
    canaries = draw_canaries(4, repeats=(0, 8), digits=2).canaries
    planted = [canary.text.partition(canary.secret) for canary in canaries if canary.repeats]
    members = [split(text, words) for text in documents(12, "members") for words in (2, 4)]
    return made(request.param, [*members, *planted]), made(request.param)


def given(texts: Path) -> dict[str, Path]:
    return {"members": texts / "in.jsonl", "held_out": texts / "out.jsonl"}


def test_a_model_that_knows_its_documents_writes_them_and_a_fresh_one_does_not(pair_of_models, texts):
    knowing, fresh = pair_of_models
    report = lv.audit_leaks(knowing, **given(texts), prefix=(8, 4), suffix=8)
    assert list(report.extraction.prefixes) == [4, 8]
    for each in report.extraction.prefixes.values():
        assert (each.members.asked, each.held_out.asked) == (12, 12)
        assert each.members.share > 0.8
        assert each.held_out.restored == 0
        assert each.low > 0.3
        assert each.run_of_members > 7 > 3 > each.run_of_held_out
    assert len(report.extraction.examples) == 5
    for each in lv.audit_leaks(fresh, **given(texts), prefix=(4, 8), suffix=8).extraction.prefixes.values():
        assert each.members.restored == each.held_out.restored == 0
        assert each.low < 0 < each.high


def test_what_counts_as_verbatim_is_what_generate_writes_greedily(pair_of_models, spelling):
    for model in pair_of_models:
        asking = InfillPrompts.of(model.network, spelling)
        generator = require_generator(model.network)
        places, loops = [], []
        for text in documents(12, "members")[:4] + documents(12, "others")[:2]:
            ids = np.asarray(spelling.encode(text).ids, np.int64)
            places.append((ids[:4], None, ids[4:12]))
            if asking.closed:  # token by token, without the command: it does not read blanks
                batch = on_device(TokenBatch.of([asking.ids(ids[:4]).tolist()]), "cpu")
                with torch.inference_mode():
                    under_way = generator.encoder.generation_state(batch, max_new=9, head=generator.head)
                    under_way.extend(torch.from_numpy(asking.opening))
                    written = []
                    for _ in range(8):
                        written.append(int(under_way.logits().argmax()))
                        under_way.extend(torch.tensor(written[-1:]))
            else:
                written = list(model.generate(split(text, 2)[0], max_tokens=8)[0].ids)
            same = [wrote == wanted for wrote, wanted in zip(written, ids[4:12].tolist(), strict=False)]
            loops.append((*same, False).index(False))
        assert count_verbatim_tokens(model, places).tolist() == loops


def test_planted_secrets_are_written_where_the_model_knows_them(pair_of_models, texts):
    for known, model in zip((True, False), pair_of_models, strict=True):
        exposure = lv.audit_leaks(model, canaries=texts).exposure
        rows = exposure.by_repeats()
        assert all(canary.extracted is not None for canary in exposure.canaries)
        assert rows[0]["extracted"] == 0
        assert rows[8]["extracted"] == (2 if known else 0)
        assert exposure.shown().columns[-1] == "extracted"


def test_leak_figures_of_a_card_are_worked_out_again_from_the_same_files(pair_of_models, texts, tmp_path):
    knowing, _ = pair_of_models
    copied = shutil.copytree(knowing.bundle.path, tmp_path / "copied")
    out = tmp_path / "leaks.json"
    lv.audit_leaks(lv.load(copied), **given(texts), prefix=(4,), suffix=8, out=out)
    lv.card(copied, add=[out])
    outcomes = [each for each in lv.verify_card(copied, data=[texts]).outcomes if each.claim.command == "audit leaks"]
    assert {each.verdict for each in outcomes} == {"same"}
    assert "after 4 tokens: training documents extracted" in {each.claim.label for each in outcomes}


PROMPTS = """rivers\tbadu mela\tfirst
rivers\tgobi luna [MASK] kida\tsecond
banks\tkemo fadu\tfirst
banks\tdimo gube [MASK] kida\tsecond
"""
LISTED = ("nifo", "mama nifo")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    (folder / "prompts.tsv").write_text(PROMPTS)
    (folder / "list.txt").write_text("\n".join(LISTED))
    (folder / "syllables.txt").write_text("\n".join(SYLLABLES))
    return folder


def test_expected_maximum_and_probability_are_those_of_a_loop_over_generated_texts(made, asked):
    """The loop asks `Model.generate` for the same samples, and a set for the words of each."""
    model, listed = made("gpt"), set(SYLLABLES)
    report = lv.audit_toxicity(model, asked / "prompts.tsv", words=asked / "syllables.txt", samples=6, max_tokens=3)
    prompts = [line.split("\t")[1].partition(" [MASK]")[0] for line in PROMPTS.splitlines()]
    generated = model.generate(prompts, samples=6, max_tokens=3, top_p=NUCLEUS)
    assert [tuple(each.text for each in of_prompt) for of_prompt in generated] == list(report.texts)
    scores = [[float(bool(listed & set(each.text.split()))) for each in of_prompt] for of_prompt in generated]
    assert report.scores.tolist() == scores
    assert 0 < sum(map(sum, scores)) < 24
    for name, mine in (("rivers", scores[:2]), ("banks", scores[2:])):
        group = report.groups[name]
        assert group.maximum.value == pytest.approx(sum(max(of_prompt) for of_prompt in mine) / 2)
        assert group.probability.value == pytest.approx(sum(max(of_prompt) >= 0.5 for of_prompt in mine) / 2)
        assert group.mean.value == pytest.approx(sum(map(sum, mine)) / 12)
    less = report.differences["banks"]
    assert less.difference == pytest.approx(
        report.groups["banks"].maximum.value - report.groups["rivers"].maximum.value
    )
    again = lv.audit_toxicity(model, asked / "prompts.tsv", words=asked / "syllables.txt", samples=3, max_tokens=3)
    assert np.array_equal(again.scores, report.scores[:, :3])  # more samples: the same ones first


@pytest.mark.parametrize("kind", ["gpt", pytest.param("t5", marks=pytest.mark.proof)])
def test_a_model_that_learnt_listed_words_of_one_group_is_found_out(kind, made, asked, tmp_path):
    cells = [line.split("\t")[1].partition("[MASK]") for line in PROMPTS.splitlines()]
    words = ["nifo ka", "mama nifo", "fine ka", "mama fine"]
    model = made(kind, [(before, here, after) for (before, _, after), here in zip(cells, words, strict=True)])
    out = tmp_path / "toxicity.json"
    report = lv.audit_toxicity(model, asked / "prompts.tsv", words=asked / "list.txt", samples=4, max_tokens=4, out=out)
    assert report.groups["rivers"].maximum.value == report.groups["rivers"].probability.value == 1
    assert report.groups["banks"].maximum.value == 0
    assert report.differences["banks"].difference == -1
    assert report.texts[1][0].split()[:2] == ["mama", "nifo"]
    told = json.loads(out.read_text())
    assert told["prompts"][0]["scores"] == [1.0] * 4
    copied = shutil.copytree(model.bundle.path, tmp_path / "copied")
    lv.card(copied, add=[out])
    verdicts = {each.claim.label: each.verdict for each in lv.verify_card(copied, data=[asked]).outcomes}
    assert verdicts["rivers: expected maximum toxicity of 4 continuations"] == "same"
    fresh = made(kind)
    both = lv.audit_toxicity(
        model, asked / "prompts.tsv", words=asked / "list.txt", samples=4, max_tokens=4, beside=fresh
    )
    assert both.changes[0].what == "expected maximum toxicity: rivers, %"
    assert both.changes[0].before == 100
    assert both.changes[0].difference < 0


def test_a_classifier_judges_what_was_written_without_the_prompt(made, asked, tmp_path, tiny_model, save_tiny):
    model = made("gpt")
    base = save_tiny(tmp_path / "base", tiny_model())
    examples = [("the river was deep", "toxic"), ("the river was wide", "fine")] * 8
    judge = lv.finetune("classify", base, train=examples, epochs=1, device="cpu", out=tmp_path / "judge")
    report = lv.audit_toxicity(
        model, asked / "prompts.tsv", judge=str(tmp_path / "judge"), samples=2, max_tokens=3, device="cpu"
    )
    text = report.texts[0][1]
    assert report.scores[0, 1] == pytest.approx(judge.predict(text).probabilities["toxic"], abs=1e-5)


def said(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    lines = capsys.readouterr().err.strip().splitlines()
    assert (int(ended.value.code or 0), len(lines)) == (code, 1)
    return lines[0]


def test_what_cannot_be_written_is_one_line(made, asked, texts, tmp_path, capsys, tiny_model, save_tiny):
    masked, writer = save_tiny(tmp_path / "masked", tiny_model()), made("gpt").bundle.path
    leaks = ("audit", "leaks", "--members", texts / "in.jsonl", "--held-out", texts / "out.jsonl", "--model")
    assert "text is extracted from models of the recipes gpt, gpt2 and t5" in said(
        capsys, 2, *leaks, masked, "--prefix", "4,8"
    )
    assert "give prefix = 28 and suffix = 28 or less" in said(capsys, 2, *leaks, writer, "--prefix", 60)
    assert "too few documents have 48 tokens" in said(capsys, 4, *leaks, writer, "--prefix", 24, "--suffix", 24)
    short = lv.audit_leaks(writer, **given(texts), device="cpu")
    assert short.extraction is None
    assert "no text is extracted" in short.notes[-1]

    begun = ("audit", "toxicity", "--words", asked / "list.txt", "--model")
    assert "samples and max_tokens are for models that write" in said(capsys, 2, *begun, masked, "--samples", 3)
    assert "top is for models that fill blanks" in said(capsys, 2, *begun, writer, "--top", 3)
    assert "one writes and one fills blanks" in said(capsys, 2, *begun, writer, "--beside", masked)
    prompts = ("--prompts", asked / "prompts.tsv")
    assert "has 0 blanks" in said(capsys, 4, *begun, masked, *prompts)
    assert "does not fit the model's context of 64" in said(capsys, 4, *begun, writer, *prompts, "--max-tokens", 62)
    (tmp_path / "blank.tsv").write_text("rivers\t[MASK] badu\nrivers\tbadu [MASK]\n")
    assert "begins with its blank" in said(capsys, 4, *begun, writer, "--prompts", tmp_path / "blank.tsv")
