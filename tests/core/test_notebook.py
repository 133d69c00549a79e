"""What results look like in a notebook: well-formed, escaped, and with what they hold."""

from html.parser import HTMLParser

import pytest

import larvatus as lv
from larvatus.core import notebook
from larvatus.tasks.results import Classified, Coverage, Entity, Spanned, Tagged, TaggedWord

EVIL = '<script>alert("x")</script>&'
COVERAGE = Coverage(tokens=3, read=3, windows=1)


class Checked(HTMLParser):
    """Every tag is closed in its turn; the text is kept."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


def entity(start, end, label, text):
    return Entity(text=text[start:end], label=label, start=start, end=end, score=0.5)


NESTED = "The [United Airlines] Holding"
RESULTS = [
    Classified(text=EVIL, pair=EVIL, label=EVIL, probabilities={EVIL: 0.75, "b": 0.25}, coverage=COVERAGE),
    Tagged(
        text=EVIL,
        words=(TaggedWord(text=EVIL, tag=EVIL, start=0, end=len(EVIL), probability=1.0),),
        entities=(entity(0, 3, EVIL, EVIL),),
        coverage=COVERAGE,
    ),
    Spanned(text=EVIL, entities=(entity(0, 9, EVIL, EVIL), entity(2, 5, "I", EVIL)), coverage=COVERAGE),
]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_text_cannot_become_markup(result):
    checked = Checked(result._repr_html_())
    assert checked.tags <= {"div", "span", "sub", "strong", "small", "table", "tr", "td", "th"}
    assert EVIL[:3] in checked.text


def test_marked_text_is_the_text_with_labels_where_spans_end():
    spans = [(0, 7, "A"), (2, 5, "B"), (4, 9, "C")]  # nested, and crossing
    html = notebook.marked("abcdefghij", spans)
    assert Checked(html).text == "abcdeBfgAhiCj"
    assert notebook.marked("abc", []).count("<span") == 0


def test_fills_vectors_evaluations_and_tables_show(tiny_directory):
    model = lv.load(tiny_directory)
    fills = model.fill("the [MASK] ran", top=3)
    assert Checked(fills._repr_html_()).text.count("%") == 3
    assert "2 × 16" in Checked(model.vectors("the river")._repr_html_()).text
    examples = [("good", "pos"), ("bad", "neg")] * 8
    found = lv.evaluate(lv.finetune("classify", model, train=examples, epochs=1), data=examples, samples=20)
    assert "accuracy" in Checked(found._repr_html_()).text
    assert "95%" in Checked(found._repr_html_()).text
