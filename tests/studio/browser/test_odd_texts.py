"""Texts nobody should type, in every view that takes one: none breaks the page, and none becomes markup."""

from __future__ import annotations

import pytest

from tests.studio.browser.guarded import Guarded
from tests.studio.browser.models import HOSTILE

pytestmark = pytest.mark.proof
ODD = {
    "emoji": "the 👩‍👩‍👧‍👦 river 🏳️‍🌈 was 🙂 wide",
    "right to left": "הנהר היה רחב the river كان النهر واسعا",
    "markup": f"the river {HOSTILE} <script>alert(2)</script> <b>was</b> &lt;wide&gt; \"'><svg onload=alert(3)>",
    "marks alone": "*** [MASK] ** \\* <mask> [CLS] [SEP]",
    "half a pair": "the river \ud83d was wide".encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    "zero width": "the\u200b river\u202e was\u0000 wide\ufeff",
}
