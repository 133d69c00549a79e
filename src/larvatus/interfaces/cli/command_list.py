"""All commands: where each stands, in which panel of the help, and what it does in a sentence."""

from __future__ import annotations

from larvatus.interfaces.cli.lazy import Listed

_START, _TEXT, _TRAIN = "Getting started", "Text", "Pretraining"
_WRITE = "Generation"
_USE, _TASKS, _VECTORS, _INSIDE = "Masked language model", "Tasks", "Vectors", "Inside a model"
_AUDIT = "Before it is shipped"
_SERVE = "For others"

COMMANDS = {
    "demo": Listed(
        "larvatus.interfaces.cli.commands.demo:demo",
        _START,
        "Use the packaged English model, if there is one; then learn a small BERT from Python's own documentation.",
    ),
    "doctor": Listed("larvatus.interfaces.cli.commands.doctor:doctor", _START, "Versions, devices, kernels, free memory."),
    "bench": Listed(
        "larvatus.interfaces.cli.commands.bench:bench",
        _START,
        "This machine's matrix ceiling, training, embedding, loader and memory, beside installed peers; or --grow.",
    ),
    "recipes": Listed("larvatus.interfaces.cli.commands.recipes:app", _START, "The published systems, one file each."),
    "tokenizer": Listed(
        "larvatus.interfaces.cli.commands.tokenizer:app", _TEXT, "Learn a vocabulary from text, and look at what it does."
    ),
    "corpus": Listed(
        "larvatus.interfaces.cli.commands.corpus:app", _TEXT, "Check text; build, show and verify token shards."
    ),
    "pretrain": Listed(
        "larvatus.interfaces.cli.commands.pretrain:pretrain",
        _TRAIN,
        "Pretrain an encoder on your own text; vocabulary and shards are built beside the run, a built corpus is "
        "taken.",
    ),
    "compare": Listed(
        "larvatus.interfaces.cli.commands.compare:compare",
        _TRAIN,
        "Train several recipes on the same text under the same budget, and show them in one table and a plot.",
    ),
    "ablate": Listed(
        "larvatus.interfaces.cli.commands.ablate:ablate",
        _TRAIN,
        "Repeat a published ablation on your own text: variants of one recipe, everything else equal.",
    ),
    "convert": Listed(
        "larvatus.interfaces.cli.commands.convert:convert",
        _TRAIN,
        "Write a model in another layout: ours or one of Hugging Face's. Heads without a place there are left out.",
    ),
    "card": Listed(
        "larvatus.interfaces.cli.commands.card:model_card",
        _TRAIN,
        "Render README.md from the claims in larvatus.json, add figures, or work all of them out again (--verify).",
    ),
    "export": Listed(
        "larvatus.interfaces.cli.commands.export:app",
        _TRAIN,
        "Write a model for other programs: ONNX, checked against torch.",
    ),
    "fill": Listed(
        "larvatus.interfaces.cli.commands.fill:fill",
        _USE,
        "Fill the blanks of texts: the likeliest words, with their probabilities.",
    ),
    "score": Listed(
        "larvatus.interfaces.cli.commands.score:score",
        _USE,
        "Pseudo-log-likelihood of texts, by word; or accuracy on minimal pairs, by phenomenon.",
    ),
    "generate": Listed(
        "larvatus.interfaces.cli.commands.generate:generate",
        _WRITE,
        "Go on with texts, token after token: the likeliest, drawn, or by beam search (gpt, t5).",
    ),
    "data": Listed("larvatus.interfaces.cli.commands.data:app", _TASKS, "Labelled data for fine-tuning."),
    "finetune": Listed(
        "larvatus.interfaces.cli.commands.finetune:app",
        _TASKS,
        "Fine-tune a model on labelled examples, choose the best weights on held-out ones, calibrate, and save.",
    ),
    "prompt": Listed(
        "larvatus.interfaces.cli.commands.prompt:command",
        _TASKS,
        "Classify through a pattern with a blank: texts as they come, a table of methods (--data), or PET (--out).",
    ),
    "predict": Listed(
        "larvatus.interfaces.cli.commands.predict:predict",
        _TASKS,
        "Classify texts, tag words, find spans, answer questions, choose endings: labels, probabilities, characters, "
        "and how much of each text was read.",
    ),
    "evaluate": Listed(
        "larvatus.interfaces.cli.commands.evaluate:evaluate",
        _TASKS,
        "Masked loss, perplexity and accuracy on held-out text (--corpus), with fixed masks, so that models compare.",
    ),
    "embed": Listed(
        "larvatus.interfaces.cli.commands.embed:embed",
        _VECTORS,
        "Vectors of the words, sentences or documents of a corpus, with their text and place. After a kill: --resume.",
    ),
    "similar": Listed(
        "larvatus.interfaces.cli.commands.similar:app",
        _VECTORS,
        "Cosine between word instances, nearest instances in a corpus. TEXTS come first: the command is then `words`.",
    ),
    "map": Listed(
        "larvatus.interfaces.cli.commands.map:word_map",
        _VECTORS,
        "Instances of words in a corpus as points: a page to explore, a picture, a table. Near means used alike.",
    ),
    "senses": Listed(
        "larvatus.interfaces.cli.commands.senses:app",
        _VECTORS,
        "Word senses: vectors from tagged text, and the nearest sense of a word.",
    ),
    "isotropy": Listed(
        "larvatus.interfaces.cli.commands.isotropy:app",
        _INSIDE,
        "Anisotropy of a model's layers; standardised vectors (z-scores, by dimension).",
    ),
    "attention": Listed(
        "larvatus.interfaces.cli.commands.attention:app",
        _INSIDE,
        'What attention heads look at: larvatus attention "A sentence." --model DIR --out page.html',
    ),
    "audit": Listed(
        "larvatus.interfaces.cli.commands.audit_group:app",
        _AUDIT,
        "What a model learnt that it should not show: bias, leaks, toxicity.",
    ),
    "studio": Listed(
        "larvatus.interfaces.cli.commands.studio:studio",
        _SERVE,
        "Open a page to fill blanks, look inside, compare, label, teach and watch models. Ctrl-C ends it.",
    ),
    "serve": Listed(
        "larvatus.interfaces.cli.commands.serve:serve",
        _SERVE,
        "Serve every task of models: /v1/fill, /v1/embed, /v1/classify, …; /docs lists all. Ctrl-C ends it.",
    ),
}
