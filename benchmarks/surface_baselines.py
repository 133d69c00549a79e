"""What surface cues get on the sets of `larvatus compare --then`: the commonest label, a bag of words, word forms.

    python benchmarks/surface_baselines.py --examples 4000 classify=glue/SST-2,glue/CoLA,glue/STS-B tag:EWT=pos/ewt

The same examples are learnt from and scored as there. Texts: TF-IDF of words and pairs of words with logistic
regression; of pairs, the words of both texts and of what they share. Numbers: the cosine of the two TF-IDF vectors,
without learning from labels. Tags: the commonest of each word form, the commonest of all for other words.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from scipy.sparse import hstack
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from larvatus.evaluation.compare.labelled_sets import LabelledSet, labelled_set, parse_sets, word_form_accuracy


def of_texts(data: LabelledSet) -> tuple[float, float, str]:
    """The commonest label's score, and a bag of words'."""
    train, scored = list(data.train), list(data.scored)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    words.fit([text for each in train for text in (each.text, each.pair or "")])
    if isinstance(train[0].label, float):
        first, second = words.transform([e.text for e in scored]), words.transform([e.pair or "" for e in scored])
        cosine = np.asarray(first.multiply(second).sum(1)).ravel()
        return 0.0, float(spearmanr(cosine, [e.label for e in scored]).statistic), "spearman"

    def features(examples: list) -> object:
        first = words.transform([e.text for e in examples])
        if examples[0].pair is None:
            return first
        second = words.transform([e.pair for e in examples])
        return hstack([first, second, first.minimum(second)]).tocsr()

    labels, truth = [e.label for e in train], [e.label for e in scored]
    model = LogisticRegression(C=10.0, max_iter=2_000).fit(features(train), labels)
    given, common = model.predict(features(scored)), Counter(labels).most_common(1)[0][0]
    if data.metric == "matthews":
        return 0.0, float(matthews_corrcoef(truth, given)), "matthews"
    return float(np.mean([t == common for t in truth])), float(np.mean(np.array(truth) == given)), "accuracy"


def of_tags(data: LabelledSet) -> tuple[float, float, str]:
    tags = Counter(tag for example in data.train for tag in example.tags)
    common = tags.most_common(1)[0][0]
    scored = [tag for example in data.scored for tag in example.tags]
    return float(np.mean([tag == common for tag in scored])), word_form_accuracy(data)["word forms"], "accuracy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--examples", type=int)
    given = parser.parse_args()
    print("set       measure    commonest  surface  learnt from  scored")
    for source in parse_sets(given.sets):
        data = labelled_set(source, most=given.examples)
        common, surface, metric = of_tags(data) if data.task == "tag" else of_texts(data)
        sizes = f"{len(data.train):11,}  {len(data.scored):6,}"
        print(f"{data.name:8}  {metric:9}  {common:9.1%}  {surface:7.1%}  {sizes}")


if __name__ == "__main__":
    main()
