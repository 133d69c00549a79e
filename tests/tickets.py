"""Support tickets of a made-up shop, as its help desk exports them: a byte order mark, semicolons, holes."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

TOPICS = {
    "billing": (
        "I was charged twice for {}.",
        "The invoice for {} shows the wrong amount.",
        "When do I get my money back for {}?",
        "Please refund the payment for {}.",
    ),
    "delivery": (
        "My parcel with {} has not arrived.",
        "The courier left {} with a neighbour I do not know.",
        "Tracking says {} was delivered; there is nothing at my door.",
        "Can you send {} to another address?",
    ),
    "account": (
        "I cannot log in since I ordered {}.",
        "The password link in the mail about {} does not work.",
        "Please delete my account, I bought {} as a guest.",
        "How do I change my e-mail address? I ordered {}.",
    ),
    "defect": (
        "The screen of {} stays black.",
        "One button of {} is broken.",
        "After two days {} stopped working.",
        'It says "error 17"; {} makes a strange noise.',
    ),
}
THINGS = ("the kettle", "two lamps", "a phone case", "the headphones", "my order", "the coffee machine", "a keyboard")
ENDS = ("", " Thanks.", " Please help!", "\nRegards, M.", " This is the second time I write.", " (sent from my phone)")
HOLES = {17: ("body", ""), 40: ("topic", ""), 41: ("topic", "NaN"), 108: ("body", "NaN"), 230: ("body", "  ")}
"""Rows whose body or topic is missing."""


def write_tickets(path: Path, count: int, *, seed: int, first: int) -> None:
    """A table of tickets whose numbers begin at `first`, always the same."""
    chance = random.Random(seed)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", lineterminator="\r\n")
    writer.writerow(["id", "opened", "channel", "body", "topic"])
    for number in range(count):
        topic = chance.choice(list(TOPICS))
        body = chance.choice(TOPICS[topic]).format(chance.choice(THINGS)) + chance.choice(ENDS)
        row = {"body": body, "topic": topic}
        if number in HOLES:
            column, value = HOLES[number]
            row[column] = value
        day = f"2026-03-{1 + number % 28:02d}"
        channel = chance.choice(["mail", "chat", "phone", ""])
        writer.writerow([f"T{first + number}", day, channel, row["body"], row["topic"]])
    path.write_bytes(text.getvalue().encode("utf-8-sig"))
