"""Faults of configuration (rows 63 to 65): misspelt, impossible, or slipped in unseen."""

import typer

from larvatus.interfaces.cli.main import app


def test_row_63_a_misspelt_field_suggests_the_right_one(pretrain):
    code, said = pretrain("absent", "--set", "corruption.rat=0.2")
    assert (code, said) == (3, "larvatus: bert: corruption.rat is not a setting; did you mean corruption.rate?")


def test_row_64_a_composition_that_cannot_work_is_refused_before_data(pretrain):
    code, said = pretrain("absent", "--set", "packing.type=full-sentences")
    assert code == 3
    assert 'next-sentence needs sentence pairs, but packing "full-sentences" gives none' in said


def flags():
    """Every command with the options it takes."""
    found = {}

    def walk(command, path):
        found[path] = sorted(opt for p in command.params for opt in [*p.opts, *p.secondary_opts] if opt.startswith("-"))
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}".strip())

    walk(typer.main.get_command(app), "larvatus")
    return found


def test_row_65_no_flag_slips_in_unseen():
    """Fault 65: a new flag must be added here, on purpose."""
    seen = {command: " ".join(options) for command, options in flags().items()}
    assert seen == KNOWN_FLAGS


TUNING = (
    "--batch --curve --decay --dev --device --encoding --epochs --errors --evaluations --group --head-rate "
    "--layer-decay --length --lm-weight --metric --microbatch --model --no-dev --out --overwrite --patience "
    "--precision --quiet --rate --resume --seed --seeds --set --strict --train --trained --truncate --warmup --with "
    "--with-dev"
)
"""What every task has."""
KNOWN_FLAGS = {
    "larvatus": "--debug --install-completion --quiet --show-completion --version",
    "larvatus demo": "--minutes --out --quiet --seed",
    "larvatus tutorial": "--out --overwrite",
    "larvatus pretrain": (
        "--activation-checkpointing --add-words --compile --corpus --deterministic --device --dictionary "
        "--embedding-share --encoding --epochs --evaluate-every --fork --from --initialise --language --language-field "
        "--licence --memory --microbatch --minutes --no-compile --old --on-bad --out --overwrite --parallel "
        "--precision --quiet --rank-timeout --replay --replay-text --resume --save-every --seed --sentences --set "
        "--size --split --stay --steps --tensorboard --text --text-field --valid --vocabulary --workers"
    ),
    "larvatus studio": "",
    "larvatus studio export": "--json --limit --model --overwrite --runtime",
    "larvatus studio open": (
        "--device --host --host-allowed --index --no-browser --port --quantise --runs --runtime --senses --wordnet"
    ),
    "larvatus serve": (
        "--batch-tokens --connections --device --host --host-allowed --index --json --key-file --max-body --max-items "
        "--max-numbers --max-tokens --max-top --port --quantise --queue --runtime --senses --threads "
        "--timeout --wordnet"
    ),
    "larvatus fill": (
        "--beam --device --file --joint --json --marginals --model --out --overwrite --quantise --runtime --subwords "
        "--text --top --words-only"
    ),
    "larvatus generate": (
        "--beams --device --early-stopping --encoding --file --json --length-penalty --max-tokens --model --out "
        "--overwrite --quantise --runtime --samples --seed --stop --temperature --text --top-k --top-p"
    ),
    "larvatus doctor": "--json --report",
    "larvatus bench": (
        "--activation-checkpointing --compile --corpus --deterministic --device --grow --json --largest --length "
        "--memory --microbatch --model --no-compile --no-peers --overwrite --peers --plot --precision --quiet "
        "--recipe --seconds --set --size --tokens --workers"
    ),
    "larvatus plan": (
        "--activation-checkpointing --compile --deterministic --device --encoding --epochs --json --language "
        "--language-field --licence --measure --memory --microbatch --minutes --no-compile --no-measure --on-bad "
        "--precision --quiet --recipe --sentences --size --split --text --text-field --vocabulary --workers"
    ),
    "larvatus recipes": "--json",
    "larvatus recipes show": "--annotated --json --set --size",
    "larvatus tokenizer": "",
    "larvatus tokenizer train": (
        "--alpha --cased --digits --encoding --errors --json --language --language-field --lowercase --on-bad --out "
        "--overwrite --quiet --ray --sample --size --split --text --text-field --type"
    ),
    "larvatus tokenizer show": "--json",
    "larvatus corpus": "",
    "larvatus corpus build": (
        "--against --alpha --canaries --canary-digits --canary-format --canary-repeats --canary-seed --confidence "
        "--encoding --errors --filter --json --language --language-field --least-letters --least-words --licence "
        "--most-damaged --most-listed --most-words --near --on-bad --out --overlap-words --personal --quiet --ray "
        "--region --sentences --shingle --sketch --split --text --text-field --tokenizer --word-list --workers"
    ),
    "larvatus corpus check": (
        "--against --confidence --encoding --errors --filter --json --language --language-field --least-letters "
        "--least-words --licence --most-damaged --most-listed --most-words --near --on-bad --out --overlap-words "
        "--overwrite --quiet --ray --region --sentences --shingle --split --text --text-field --word-list --workers"
    ),
    "larvatus corpus contamination": "--json --words",
    "larvatus corpus show": "--alpha --json",
    "larvatus corpus verify": "--json",
    "larvatus adapter": "",
    "larvatus adapter add": "--alpha --dtype --json --model",
    "larvatus adapter extract": "--base --json --out --rank",
    "larvatus adapter merge": "--json --out --overwrite",
    "larvatus export": "",
    "larvatus export onnx": "--json --out --output --overwrite",
    "larvatus card": "--add --data --device --intensity --json --overhead --verify --watts",
    "larvatus convert": "--dtype --json --online --overwrite --revision --to",
    "larvatus compare": (
        "--activation-checkpointing --compile --corpus --device --encoding --epochs --json --language "
        "--language-field --licence --memory --microbatch --minutes --no-compile --on-bad --out --precision --quiet "
        "--resume --seed --seeds --sentences --set --size --split --steps --text --text-field --then --then-examples "
        "--then-seeds --then-set --tokens --valid --workers"
    ),
    "larvatus ablate": (
        "--activation-checkpointing --compile --corpus --device --encoding --epochs --json --language "
        "--language-field --licence --memory --microbatch --minutes --no-compile --on-bad --out --precision --quiet "
        "--recipe --resume --seed --seeds --sentences --set --size --split --steps --text --text-field --then "
        "--then-examples --then-seeds --then-set --tokens --valid --workers"
    ),
    "larvatus evaluate": (
        "--against --baselines --beams --beside --by --corpus --data --device --draws --encoding --epochs --errors "
        "--examples --glue --header --json --judgements --label --language --language-field --layers --leave-out "
        "--length --member --merge --metric --microbatch --negative --no-header --no-quoting --on-bad --only --out "
        "--overwrite --pair --plot --precision --predictions --quantise --queries --quick --quoting --rate --repair "
        "--resume --rows --runtime --samples --score --seeds --sentences --separator --shots --source --split --strict "
        "--suite --tag --target --task --text --text-field --tokens --train --transfer --treebank --truncate --vectors "
        "--word"
    ),
    "larvatus embed": (
        "--device --dtype --encoding --errors --json --language --layers --model --no-normalise --normalise --on-bad "
        "--out --overlap --overwrite --pool --precision --quantise --quiet --ray --resume --runtime --sentences "
        "--split --standardise --text --text-field --unit"
    ),
    "larvatus score": (
        "--device --encoding --errors --file --json --method --model --normalise --out --overwrite --pairs --quantise "
        "--quiet --ray --resume --runtime --text"
    ),
    "larvatus audit": "",
    "larvatus audit bias": (
        "--associations --device --encoding --header --json --label --layers --model --most-pairs --no-header "
        "--no-quoting --out --overwrite --pair --pairs --permutations --quantise --quiet --quoting --runtime --samples "
        "--seed --separator --standardise --stereoset --swaps --templates --test --text --winobias"
    ),
    "larvatus audit leaks": (
        "--canaries --device --documents --draws --encoding --exact --held-out --json --language --masks --members "
        "--model --on-bad --out --overwrite --prefix --quantise --quiet --reference --runtime --samples --seed "
        "--sentences --spans --split --suffix --text --text-field --words"
    ),
    "larvatus audit split": (
        "--encoding --json --language --on-bad --out --overwrite --quiet --seed --sentences --share --split --text "
        "--text-field"
    ),
    "larvatus audit toxicity": (
        "--beside --corpus --device --document-words --documents --encoding --json --judge --label --language "
        "--masks --max-tokens --model --on-bad --out --overwrite --pairs --prompts --quantise --quiet --runtime "
        "--samples --seed --sentences --split --text --text-field --top --words"
    ),
    "larvatus probe": (
        "--amnesic --description-length --device --encoding --hidden --json --labels --layers --limit --memory --model "
        "--no-description-length --no-random-weights --out --overwrite --probe --quiet --random-weights --samples "
        "--seed --tag --task --test --word"
    ),
    "larvatus explain": (
        "--at --baseline --data --device --json --limit --method --model --out --overwrite --pair --pair-column "
        "--quiet --seed --steps --target --task --text --tolerance"
    ),
    "larvatus lens": "",
    "larvatus lens show": (
        "--device --file --json --model --out --overwrite --subwords --text --top --tuned --words-only"
    ),
    "larvatus lens train": (
        "--corpus --device --encoding --json --language --model --name --on-bad --out --overwrite --positions "
        "--quiet --rate --seed --sentences --split --steps --text --text-field --tokens"
    ),
    "larvatus isotropy": "",
    "larvatus isotropy fit": (
        "--corpus --device --encoding --json --language --model --most --name --on-bad --out --overwrite --pool "
        "--punctuation --quiet --sentences --split --text --text-field --unit"
    ),
    "larvatus isotropy show": (
        "--corpus --device --encoding --json --language --model --most --on-bad --overwrite --plot --pool "
        "--punctuation --quiet --rogue --sentences --shrinkage --split --standardise --text --text-field"
    ),
    "larvatus search": "",
    "larvatus search build": (
        "--bm25 --device --dtype --encoding --errors --hnsw --json --language --metadata --model --no-bm25 "
        "--on-bad --out --overlap --overwrite --passage --quantise --quiet --ray --rescore --runtime --sentences "
        "--split --text --text-field"
    ),
    "larvatus search ask": (
        "--bm25 --candidates --device --exact --hybrid --index --json --model --no-verify --out --overwrite "
        "--path --quantise --quiet --rerank --runtime --top --verify --where"
    ),
    "larvatus search evaluate": (
        "--bm25 --candidates --device --dtype --exact --hnsw --hybrid --index --json --judgements --model "
        "--overlap --passage --quantise --queries --quiet --rerank --rescore --runtime"
    ),
    "larvatus distil": "",
    "larvatus distil static": (
        "--corpus --device --encoding --language --model --on-bad --out --overwrite --quiet --sentences --sif --size "
        "--split --text --text-field"
    ),
    "larvatus similar": "",
    "larvatus similar layers": "--json --model",
    "larvatus similar words": (
        "--any-word --device --encoding --in --json --language --layers --model --on-bad --out --overwrite --pool "
        "--quiet --sentences --span --split --standardise --text --text-field --top --word"
    ),
    "larvatus similar index": (
        "--device --encoding --json --language --layers --model --on-bad --out --pool --quiet --resume --sentences "
        "--split --standardise --text --text-field --word --words"
    ),
    "larvatus similar evaluate": "--device --json --layers --model --pool --standardise --train",
    "larvatus map": (
        "--cased --clusters --color --color-field --corpus --csv --device --encoding --json --language "
        "--language-field --layers --limit --method --model --on-bad --out --overwrite --png --pool --quantise "
        "--quiet --runtime --seed --sentences --split --standardise --text --text-field"
    ),
    "larvatus attention": "",
    "larvatus attention show": (
        "--corpus --device --encoding --head --json --layer --length --limit --model --on-bad --out --overwrite --png "
        "--quiet --split --text --text-field"
    ),
    "larvatus attention importance": (
        "--corpus --device --encoding --json --model --on-bad --out --overwrite --prune --quiet --sentences --split "
        "--text --text-field --tokens"
    ),
    "larvatus patch": "--answers --device --html --json --model --overwrite --quiet",
    "larvatus knockout": (
        "--ablation --corpus --correction --data --device --encoding --examples --greedy --json --layers --limit "
        "--measure --method --metric --model --of --on-bad --pairs --phenomena --quiet --random-sets --samples --seed "
        "--sentences --split --text --text-field --tokens"
    ),
    "larvatus features": "",
    "larvatus features train": (
        "--auxiliary --batch --buffer --contexts --corpus --dead-after --device --encoding --epochs --json --k "
        "--language --layer --learning-rate --model --on-bad --out --quiet --seed --sentences --size --split --text "
        "--text-field --tokens"
    ),
    "larvatus features show": "--feature --html --json --overwrite --random --sort --top --word",
    "larvatus senses": "",
    "larvatus senses build": "--device --json --layers --model --names --out --pool --quiet --wordnet",
    "larvatus senses tag": (
        "--backoff --device --discourse --file --json --model --out --overwrite --pos --prior --senses --standardise "
        "--text --wordnet"
    ),
    "larvatus senses evaluate": (
        "--backoff --device --discourse --gold --json --keys --model --prior --senses --standardise --wordnet"
    ),
    "larvatus senses show": "--json --nearest --senses --standardise --wordnet",
    "larvatus data": "",
    "larvatus data check": (
        "--dev --encoding --examples --for --header --json --label --labels --longest --member --model --negative "
        "--no-header --no-quoting --pair --quoting --rows --score --separator --tag --target --task --text --word"
    ),
    "larvatus predict": (
        "--batch-tokens --beams --conllu --device --encoding --ending --errors --file --format --glue-submission "
        "--json --length --merge --out --overlap --overwrite --pair --pair-column --probabilities --quantise --ray "
        "--resume --runtime --task --text --top --truncate"
    ),
    "larvatus prompt": (
        "--baseline --batch --calibrate --data --device --distil-steps --draws --encoding --header --json --k --label "
        "--length --method --microbatch --mlm-weight --model --neutral --no-header --no-quoting --out --overwrite "
        "--pair --pattern --precision --quiet --quoting --rate --resume --seed --steps --temperature --text --total "
        "--train --trained --unlabelled --unlabelled-most --verbaliser"
    ),
    "larvatus finetune": "",
    **{
        f"larvatus finetune {task}": " ".join(sorted(f"{TUNING} {flags}".split()))
        for task, flags in {
            "classify": (
                "--auto --both-orders --class-weight --dense --dropout --focal --glue --header --label --labels "
                "--layers --lstm --merge --minutes --mix --no-both-orders --no-header --no-mix --no-quoting --pair "
                "--pool --quoting "
                "--separator --smoothing --task --text"
            ),
            "choose": (
                "--dense --dropout --header --label --mix --no-header --no-mix --no-quoting --pair --pool --quoting "
                "--text"
            ),
            "coref": (
                "--antecedents --dropout --hidden --longest --mention-weight --mentions --mentions-back --mix --no-mix "
                "--no-singletons --pool --segment --singletons"
            ),
            "embed": (
                "--dense --flops-document --flops-query --header --loss --margin --matryoshka --member --mine "
                "--mine-among --mine-margin --mine-model --mine-skip --mined --negative "
                "--no-header --no-normalise --no-quoting --normalise --pair --pool --quoting --rows --scale --score "
                "--similarity-weight --symmetric --teacher --teacher-vectors --text --vector-weight --vectors"
            ),
            "parse": (
                "--arc-size --dropout --feats --language --layers --lemmas --mix --no-feats --no-lemmas --no-mix "
                "--no-upos --pool --relation-size --upos"
            ),
            "roles": (
                "--decoder --dropout --hidden --language --longest --lstm --mix --no-mix --one-by-one --pool --reach"
            ),
            "prompt": (
                "--header --label --labels --no-header --no-quoting --pair --pattern --quoting --separator --text "
                "--verbaliser"
            ),
            "rerank": (
                "--dense --dropout --header --label --loss --mine --mine-among --mine-margin --mine-model --mine-skip "
                "--mined --mix --no-header --no-mix --no-quoting --pair --pool --quoting --text"
            ),
            "write": (
                "--header --label-word --max-tokens --no-header --no-quoting --pair --prefix --quoting --target --text"
            ),
            "tag": "--crf --dropout --layers --learn --lstm --mix --no-mix --pool --repair --scheme --tag --word",
            "spans": (
                "--binary --decoding --dropout --hidden --least-precision --longest --mix --negatives --no-mix "
                "--no-relations --no-widths --null-weight --pool --reach --relation-weight --relations "
                "--representation --tag --widths --word"
            ),
            "answer": (
                "--decoding-longest --decoding-merge --decoding-threshold --decoding-top --dropout --empty-most "
                "--empty-weight --layers --longest --lstm --mix --no-mix --no-null --no-whole-words --null --overlap "
                "--whole-words"
            ),
        }.items()
    },
}
