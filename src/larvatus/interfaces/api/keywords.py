"""Keyword types of the public functions. Generated from the settings structs: do not edit.

`make keywords` writes this file; tests/interfaces/test_keywords.py compares it with the structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from larvatus.tasks.trainer.config import Callbacks


class ColumnKeywords(TypedDict, total=False):
    header: bool | None
    label: str | None
    labels: Literal["multi-class", "multi-label", "regression"] | None
    member: str | None
    negative: Sequence[str]
    pair: str | None
    quoting: bool | None
    rows: Literal["pairs", "triplets", "scores", "groups", "texts"] | None
    score: str | None
    separator: str | None
    tag: str | None
    target: str | None
    text: str | None
    word: str | None


class ProbingKeywords(TypedDict, total=False):
    seed: int
    task: Literal["tag", "spans", "relations", "arcs", "roles", "coref", "structure"] | None
    layers: Sequence[int]
    probe: Literal["both", "linear", "mlp"]
    hidden: int
    limit: int
    labels: int
    description_length: bool
    random_weights: bool
    memory: float
    samples: int


class WordFilesKeywords(TypedDict, total=False):
    word: str | None
    tag: str | None


class TextKeywords(TypedDict, total=False):
    language: str
    sentences: Literal["library", "newline"]
    split: Literal["blank-line", "file"]
    on_bad: Literal["fail", "skip"]
    encoding: str | None
    text: str | None
    text_field: str | None
    language_field: str | None
    licence: str


class MachineKeywords(TypedDict, total=False):
    device: str
    precision: str
    compile: bool | None
    microbatch: int | None
    workers: int | None
    deterministic: bool
    activation_checkpointing: Literal["auto", "always", "never"]
    memory: float | None
    rank_timeout: float


class BulkKeywords(TypedDict, total=False):
    ray: str | None
    errors: str | Path | None


class HygieneKeywords(TypedDict, total=False):
    filter: Sequence[str]
    near: float
    shingle: int
    against: Sequence[str]
    overlap_words: int
    confidence: float
    word_list: str | Path | None
    most_listed: float
    least_words: int
    most_words: int | None
    least_letters: float
    most_damaged: float
    personal: Literal["count", "tag", "remove"] | None
    region: Sequence[str]
    sketch: bool


class BudgetKeywords(TypedDict, total=False):
    steps: int | None
    minutes: float | None
    epochs: float | None
    tokens: int | None


class AmnesicProbeKeywords(ProbingKeywords, WordFilesKeywords, total=False):
    pass


class AuditBiasKeywords(ColumnKeywords, total=False):
    samples: int
    permutations: int
    seed: int
    most_pairs: int | None
    layers: str | None
    standardise: str | Path | None
    out: str | Path | None
    overwrite: bool
    device: str
    progress: Callable[[str, int, int], None]


class AuditLeaksKeywords(TextKeywords, total=False):
    documents: int
    draws: int
    words: int
    masks: int
    spans: int
    prefix: Sequence[int]
    suffix: int | None
    exact: int
    samples: int
    seed: int
    device: str


class AuditToxicityKeywords(TextKeywords, total=False):
    words: str | Path | None
    judge: str | Path | None
    label: str | None
    top: int | None
    samples: int | None
    max_tokens: int | None
    pairs: str | Path | None
    documents: int
    masks: int
    length: int
    seed: int
    device: str


class BenchKeywords(MachineKeywords, total=False):
    size: str | None
    settings: Sequence[str] | Mapping[str, bool | int | float | str]
    model: str | Path | None
    corpus: str | Path
    length: int | None
    tokens: int | None
    seconds: float
    peers: bool
    grow: Literal["length", "batch", "layers", "corpus"] | None
    largest: int | None


class BuildCorpusKeywords(TextKeywords, BulkKeywords, HygieneKeywords, total=False):
    canaries: int
    canary_repeats: Sequence[int]
    canary_digits: int
    canary_format: str
    canary_seed: int


class BuildIndexKeywords(TextKeywords, total=False):
    layers: str | None
    pool: Literal["mean", "sum", "max", "first", "last", "cls"] | None
    standardise: str | Path | None


class BuildSensesKeywords(TypedDict, total=False):
    layers: str | None
    pool: Literal["mean", "sum", "max", "first", "last", "cls"]
    names: bool


class CheckCorpusKeywords(TextKeywords, BulkKeywords, HygieneKeywords, total=False):
    pass


class CompareKeywords(BudgetKeywords, MachineKeywords, TextKeywords, total=False):
    size: str | None
    settings: Sequence[str] | Mapping[str, bool | int | float | str]
    valid: str | Path | None
    seed: int
    seeds: Sequence[int] | None
    resume: bool
    then_settings: Sequence[str] | Mapping[str, bool | int | float | str]
    then_seeds: Sequence[int]
    then_examples: int | None


class DistilStaticKeywords(TextKeywords, total=False):
    size: int
    sif: float | None


class EmbedFilesKeywords(TextKeywords, BulkKeywords, total=False):
    unit: Literal["token", "word", "span", "sentence", "document"]
    layers: str | None
    pool: Literal["mean", "sum", "max", "first", "last", "cls"] | None
    normalise: bool | None
    overlap: int | None
    precision: Literal["fp32", "bf16"]
    standardise: str | Path | None
    dtype: Literal["float32", "float16"]
    overwrite: bool
    resume: bool


class EvaluateKeywords(ColumnKeywords, total=False):
    samples: int
    strict: bool
    repair: bool
    merge: Literal["mean", "max"]
    length: int | None
    truncate: bool
    beams: int | None
    seed: int


class EvaluateSuiteKeywords(TypedDict, total=False):
    only: Sequence[str]
    leave_out: Sequence[str]
    quick: bool
    examples: int | None
    epochs: int | None
    rate: float | None
    seeds: int | None
    layers: str | None
    precision: str
    microbatch: int | None
    resume: bool
    overwrite: bool
    device: str
    treebank: Sequence[str]
    corpus: str | None


class EvaluateTextKeywords(TextKeywords, total=False):
    tokens: int


class EvaluateVectorsKeywords(ColumnKeywords, total=False):
    queries: str | None
    judgements: str | None
    shots: int
    draws: int
    baselines: bool
    samples: int
    train: object


class FitStandardiserKeywords(TextKeywords, total=False):
    unit: Literal["token", "word", "span", "sentence", "document"]
    pool: Literal["mean", "sum", "max", "first", "last", "cls"]
    punctuation: bool
    most: int | None


class HeadImportanceKeywords(TextKeywords, total=False):
    tokens: int


class IndexDocumentsKeywords(TextKeywords, BulkKeywords, total=False):
    metadata: Sequence[str]
    passage: int
    overlap: int
    dtype: Literal["float32", "float16", "int8", "binary"]
    rescore: Literal["none", "int8", "float16"] | None
    bm25: bool
    hnsw: bool


class KnockoutKeywords(TextKeywords, total=False):
    seed: int
    of: Literal["heads", "neurons"]
    layers: Sequence[int]
    limit: int | None
    ablation: Literal["zero", "mean"]
    correction: Literal["holm", "bh"]
    greedy: int
    random_sets: int
    samples: int
    measure: Literal["accuracy", "log-probability"]
    method: Literal["word", "sentence"]
    phenomena: Sequence[str]
    examples: int | None
    metric: str | None
    tokens: int


class MeasureFaithfulnessKeywords(TypedDict, total=False):
    methods: Sequence[str]
    baseline: Literal["mask", "zero"]
    steps: int
    tolerance: float
    seed: int
    limit: int
    text: str | None
    pair_column: str | None


class MeasureIsotropyKeywords(TextKeywords, total=False):
    pool: Literal["mean", "sum", "max", "first", "last", "cls"]
    punctuation: bool
    most: int
    rogue: int
    shrinkage: float
    seed: int


class PlanKeywords(TextKeywords, MachineKeywords, total=False):
    recipe: str
    size: str | None
    vocabulary: int | None
    epochs: float | None
    minutes: float | None
    measure: bool


class PretrainKeywords(BudgetKeywords, MachineKeywords, TextKeywords, total=False):
    size: str | None
    settings: Sequence[str] | Mapping[str, bool | int | float | str]
    valid: str | Path | None
    start: str | Path | None
    add_words: Sequence[str]
    vocabulary: str | Path | None
    initialise: Literal["focus", "wechsel", "mean", "copy", "random"] | None
    dictionary: str | Path | None
    embedding_share: float | None
    old: str | Path | None
    replay: float | None
    replay_text: str | Path | None
    stay: float
    seed: int
    resume: bool
    overwrite: bool
    fork: bool
    evaluate_every: int | None
    save_every: int | None
    tensorboard: bool
    parallel: Literal["auto", "replicate", "shard"]


class ProbeKeywords(ProbingKeywords, WordFilesKeywords, total=False):
    pass


class PromptKeywords(TypedDict, total=False):
    k: int
    total: bool
    draws: int
    seed: int
    methods: Sequence[str]
    baseline: Literal["finetune"] | None
    neutral: Sequence[str]
    steps: int
    batch: int
    rate: float | None
    trained: str
    length: int | None
    unlabelled_most: int
    distil_steps: int
    temperature: float
    mlm_weight: float
    device: str
    precision: str
    microbatch: int | None
    text: str | None
    pair: str | None
    label: str | None
    header: bool | None
    quoting: bool | None
    labels: Literal["multi-class", "multi-label", "regression"] | None
    separator: str | None
    resume: bool
    overwrite: bool


class ScorePairsKeywords(TypedDict, total=False):
    method: Literal["original", "word-l2r"]
    normalise: Literal["none", "token", "word"]


class SearchKeywords(TypedDict, total=False):
    top: int
    hybrid: bool
    bm25: bool
    rerank: str | Path | None
    where: Sequence[str]
    path: Sequence[str]
    exact: bool
    candidates: int | None


class ServeModelsKeywords(TypedDict, total=False):
    host: str
    port: int
    host_allowed: Sequence[str]
    senses: str | Path | None
    wordnet: str | Path | None
    index: Sequence[str | Path]
    key_file: str | Path | None
    max_body: int
    max_items: int
    max_tokens: int
    max_numbers: int
    max_top: int
    queue: int
    connections: int
    threads: int
    batch_tokens: int
    timeout: float
    json_lines: bool


class SplitMembersKeywords(TextKeywords, total=False):
    share: float
    seed: int


class TrainFeaturesKeywords(TextKeywords, total=False):
    seed: int
    size: int
    k: int
    tokens: int
    epochs: int
    buffer: int
    batch: int
    learning_rate: float
    auxiliary: float
    dead_after: int
    contexts: int


class TrainLensKeywords(TextKeywords, total=False):
    tokens: int
    steps: int
    positions: int
    rate: float
    seed: int


class TrainTokenizerKeywords(TextKeywords, BulkKeywords, total=False):
    kind: Literal["wordpiece", "byte-bpe", "bpe", "unigram", "characters"]
    size: int
    lowercase: bool | None
    digits: Literal["together", "apart"]
    alpha: float
    sample: float
    overwrite: bool


class FinetuneKeywords(ColumnKeywords, total=False):
    epochs: int | None
    batch: int
    rate: float | None
    decay: float
    clip: float
    warmup: float
    patience: int | None
    evaluations: int
    length: int | None
    truncate: bool
    lm_weight: float
    layer_decay: float
    head_rate: float | None
    crf_rate: float
    embeddings: bool
    seeds: int | Sequence[int]
    seed: int
    resume: bool
    overwrite: bool
    trained: str | None
    metric: str | None
    curve: str | None
    strict: bool
    device: str
    precision: str
    microbatch: int | None
    pool: Literal["cls", "mean", "max", "first"] | None
    dense: Literal["tanh", "gelu", "relu", "none"] | int | None
    dropout: float | None
    mix: bool | None
    layers: str | None
    lstm: int
    both_orders: bool | None
    balanced: bool
    class_weights: Mapping[str, float]
    focal: float
    smoothing: float
    merge: Literal["mean", "max"]
    auto: bool
    minutes: float | None
    crf: bool
    learn: Literal["subwords", "words"]
    scheme: Literal["BIO", "IOB1", "BIOES", "BILOU", "none"] | None
    repair: bool
    longest: int | None
    representation: Literal["mean", "boundaries", "attention", "self-attention"]
    hidden: int
    widths: bool
    negatives: float
    null_weight: float
    decoding: Literal["flat", "nested", "free"] | Mapping[str, object] | None
    least_precision: float | None
    binary: bool
    relations: bool | None
    relation_weight: float
    reach: int | None
    upos: bool | None
    feats: bool | None
    lemmas: bool | None
    language: str
    arc_size: int
    relation_size: int
    null: bool | None
    overlap: int | None
    empty: Mapping[str, object]
    whole_words: bool | None
    pattern: str
    verbaliser: Mapping[str, str | Sequence[str]]
    prefix: str
    label_words: Mapping[str, str]
    max_tokens: int | None
    mine: int
    mine_margin: float
    mine_skip: int
    mine_among: int
    mine_model: str | None
    mined: str | Path | None
    vectors: Literal["dense", "late", "sparse"] | None
    loss: (
        Literal[
            "multiple-negatives",
            "cosent",
            "triplet",
            "simcse",
            "distillation",
            "binary-cross-entropy",
            "mean-squared",
            "softmax",
            "listnet",
        ]
        | None
    )
    normalise: bool | None
    scale: float | None
    symmetric: bool
    margin: float
    flops_query: float | None
    flops_document: float | None
    matryoshka: Sequence[int]
    teacher: str | None
    teacher_vectors: str | Path | None
    vector_weight: float | None
    similarity_weight: float
    decoder: Literal["crf", "viterbi", "spans"]
    one_by_one: bool
    singletons: bool | None
    mentions: float
    antecedents: int
    mentions_back: int
    mention_weight: float
    segment: int
    group: str | None
    hold_out: bool
    watch: Callbacks
