"""Card: the text as it stands, the claims as rows; a model that is not served has none."""

from __future__ import annotations

from larvatus.interfaces.api.cards import card
from larvatus.interfaces.studio.routes import card_of


def test_the_card_of_a_served_model(studio):
    card(studio.shelf.models["tiny"])
    shown = studio.get("/card", model="tiny").json()
    assert shown["text"].startswith("# tiny")
    assert shown["ours"]
    layers = next(claim for claim in shown["claims"] if claim["figure"] == "layers")
    assert (layers["value"], layers["section"], layers["command"]) == ("2", "Model", "model")
    assert studio.get("/card").json() == shown
    assert studio.get("/card", model="../tiny").status_code == 404


def test_a_directory_of_others_has_its_readme_and_no_claims(tmp_path):
    assert card_of(tmp_path) == {"text": "", "claims": [], "edited": False, "ours": False}
    (tmp_path / "README.md").write_text("# theirs <script>")
    assert card_of(tmp_path)["text"] == "# theirs <script>"
