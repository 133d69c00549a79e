"""The model card says what it was told, in Markdown and YAML that others can read."""

import yaml

from larvatus.models.bundle.card import Card, Datasheet, DatasheetSource, model_card
from larvatus.models.bundle.claims import make_claim

FULL = Card(
    name="runs/law",
    recipe="bert",
    about="Masked words and next sentences (Devlin et al. 2019)",
    claims=[
        *(make_claim(name, size, command="model") for name, size in {"parameters": 28_763_648, "layers": 4}.items()),
        make_claim("vocabulary", 30_522, command="model"),
        make_claim("steps", 9600, command="pretrain"),
        make_claim("tokens", 1_258_291_200, command="pretrain"),
        make_claim("hardware", "1 × H200", command="pretrain"),
        make_claim("masked loss", 2.6412345, command="held-out text"),
        make_claim("masked words right", "47.8%", command="held-out text"),
    ],
    corpus=Datasheet(
        documents=81_204,
        sentences=3_100_000,
        tokens=90_000_000,
        languages={"en": 80_000, "no": 1_204},
        sources=[
            DatasheetSource(name="judgments|2020.jsonl", documents=81_204, bytes=123, sha256="5f2c" * 16, license="CC0")
        ],
        sha256="91ab" * 16,
        license="CC0-1.0",
        skipped=3,
    ),
    license="apache-2.0",
)


def test_the_front_matter_is_yaml() -> None:
    _, front, body = model_card(FULL).split("---\n", 2)
    assert yaml.safe_load(front) == {
        "language": ["en", "no"],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["larvatus", "bert", "fill-mask"],
    }
    assert body.startswith("\n# runs/law\n")


def test_the_card_holds_every_fact_and_the_datasheet() -> None:
    text = model_card(FULL)
    for fact in ("28,763,648", "30,522", "9,600", "1,258,291,200", "2.641", "47.8%", "Devlin"):
        assert fact in text
    for fact in (
        "81,204 documents",
        "3,100,000 sentences",
        "CC0-1.0",
        "5f2c" * 16,
        "91ab" * 16,
        "3 records",
        "en 80,000",
    ):
        assert fact in text
    assert "judgments\\|2020.jsonl" in text  # a bar in a name does not break the table


def test_what_was_not_told_is_left_out_and_what_is_unknown_is_said() -> None:
    text = model_card(Card(name="x", recipe="bert", fills=False, transformers=False))
    _, front, _ = text.split("---\n", 2)
    assert yaml.safe_load(front) == {"library_name": "larvatus", "tags": ["larvatus", "bert"]}
    assert "None" not in text
    assert "Held-out" not in text
    assert "Nothing is recorded of the text" in text
    assert "only Larvatus loads it" in text
    assert "model.fill" not in text
