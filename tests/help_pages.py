"""Help pages of a made-up shop, and questions with the sentences that answered them."""

from __future__ import annotations

import csv
from pathlib import Path

PAGES = {
    "payment.md": (
        (
            "Why is my card charged twice for {}?",
            "A second charge is a reservation, and your bank releases it within five days.",
        ),
        ("When do I get my money back for {}?", "Refunds are paid to the same account within two weeks."),
        (
            "Can I pay for {} by invoice?",
            "Customers with three earlier orders may pay within thirty days after delivery.",
        ),
    ),
    "delivery.md": (
        ("Where is the parcel with {}?", "The link in our mail shows where the courier is."),
        (
            "Can {} go to another address?",
            "Until the evening before delivery, you can choose another place in your account.",
        ),
        (
            "What if nobody is at home when {} arrives?",
            "The courier leaves it with a neighbour, or at the nearest shop.",
        ),
    ),
    "account.md": (
        ("I forgot the password I used for {}.", "A new one can be set with the link below the sign-in form."),
        (
            "How do I delete the account with which I bought {}?",
            "Write to us from your address, and everything is erased after a month.",
        ),
        (
            "How can I change the mail address for {}?",
            "Sign in and open the settings, where all contact data are listed.",
        ),
    ),
    "repairs.md": (
        (
            "{} is broken, what now?",
            "Send defective goods back in their box; we repair them free of charge for two years.",
        ),
        ("Can I still return {}?", "Unused goods may come back within thirty days, without a reason."),
        ("Where do I get spare parts for {}?", "Our workshop sends screws, lids and batteries by letter."),
    ),
}
THINGS = ("the kettle", "two lamps", "a phone case", "the headphones")


def write_help_pages(folder: Path) -> None:
    """`documents/`, `pairs.csv` to train on, and `test.csv`: the same questions about other things."""
    (folder / "documents").mkdir()
    for name, entries in PAGES.items():
        title = name.removesuffix(".md").title()
        (folder / "documents" / name).write_text(
            f"# {title}\n\n" + "\n\n".join(answer for _, answer in entries) + "\n", encoding="utf-8"
        )
    for file, things in (("pairs.csv", THINGS), ("test.csv", ("a coffee machine",))):
        with (folder / file).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["question", "answer"])
            for thing in things:
                for entries in PAGES.values():
                    for question, answer in entries:
                        asked = question.format(thing)
                        writer.writerow([asked[0].upper() + asked[1:], answer])
