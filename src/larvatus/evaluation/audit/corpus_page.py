"""The result of a corpus check as an HTML page with tables and examples. Corpus text is data, never markup.

html = corpus_page("judgments/", check)
"""

from __future__ import annotations

from larvatus.data.corpus.hygiene.check import CorpusCheck, describe_reason
from larvatus.inference.search.page import asset, whole_page


def corpus_page(name: str, check: CorpusCheck) -> str:
    package = "larvatus.evaluation.audit"
    data = {
        "name": name,
        "check": check.to_dict(),
        "words": {reason: describe_reason(reason) for reason in check.reasons},
    }
    body, script = asset(package, "corpus.html"), asset(package, "corpus.js")
    return whole_page(f"{name} · corpus check", body=body, script=script, data=data)
