"""Faults of data (rows 17 to 26) as a user meets them: one line, the right exit code, nothing lost."""

import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corruption import Corruption, MaskingConfig, MaskVocabulary
from tests import warm
from tests.faults.test_runs import assert_bit_equal, command, environment, final_weights, metrics
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture
def copied(prepared, tmp_path):
    return shutil.copytree(prepared.train, tmp_path / "copied")


def no_step_was_made(tmp_path):
    return not (tmp_path / "run" / "metrics.jsonl").exists() and not (tmp_path / "run" / "checkpoints").exists()


def test_row_17_a_flipped_byte_in_a_shard_is_named_before_step_0(pretrain, copied, tmp_path):
    shard = copied / "00000.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    code, said = pretrain(copied)
    assert code == 4
    assert "00000.arrow does not match its checksum (expected" in said
    assert no_step_was_made(tmp_path)


@pytest.mark.parametrize("name", ["00000.arrow", "tokenizer/tokenizer.json"])
def test_row_18_a_missing_shard_or_tokenizer_fails_before_step_0(pretrain, copied, tmp_path, name):
    (copied / name).unlink()
    code, said = pretrain(copied)
    assert code == 4
    assert f"{name} is missing" in said
    assert no_step_was_made(tmp_path)


def test_row_18_a_truncated_shard_fails_before_step_0(pretrain, copied, tmp_path):
    shard = copied / "00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-100])
    code, said = pretrain(copied)
    assert code == 4
    assert "00000.arrow" in said
    assert no_step_was_made(tmp_path)


def test_row_19_a_stale_temporary_file_is_ignored(pretrain, copied, prepared):
    (copied / ".00001.arrow.tmp-999999").write_bytes(b"half a shard")
    code, _ = pretrain(copied, "--valid", prepared.valid)
    assert code == 0


@pytest.mark.parametrize("text", ["", "\n\n \n\n\t\n"])
def test_row_20_an_empty_or_blank_corpus_is_refused(pretrain, tmp_path, text):
    (tmp_path / "text.txt").write_text(text)
    code, said = pretrain(tmp_path / "text.txt")
    assert code == 4
    assert "no words in the text" in said


def test_row_20_a_folder_without_text_is_refused(pretrain, tmp_path):
    (tmp_path / "folder").mkdir()
    code, said = pretrain(tmp_path / "folder")
    assert code == 4
    assert "folder" in said


def test_row_21_a_corpus_smaller_than_a_batch_is_an_error_not_a_hang(pretrain, prepared):
    code, said = pretrain(prepared.train, "--valid", prepared.valid, "--set", "batch=1000000")
    assert code == 4
    assert "and one step takes 32,000,000" in said


def test_a_vocabulary_larger_than_the_text_supports_is_refused(pretrain, tmp_path):
    (tmp_path / "text.txt").write_text("a few words only\n\nand a few more words\n")
    code, said = pretrain(tmp_path / "text.txt")
    assert code == 4
    assert "tokenizer.size" in said or "--size" in said


def test_a_sentence_pair_task_without_sentences_is_refused(pretrain, larvatus, prepared, tmp_path):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    (tmp_path / "lines.txt").write_text("\n\n".join(" ".join(words[i:] + words[:i]) for i in range(10)) * 40)
    tokenizer = prepared.train / "tokenizer"
    assert (
        larvatus("corpus", "build", tmp_path / "lines.txt", "--tokenizer", tokenizer, "--out", tmp_path / "c")[0] == 0
    )
    code, said = pretrain(tmp_path / "c")
    assert code == 4
    assert "without sentences" in said


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"good line\nbad \xff byte\n", "text.txt:2:"),
        (b"good line\nand more\nnul \x00 byte\n", "text.txt:3:"),
    ],
)
def test_row_22_bad_bytes_name_file_and_line_or_are_skipped_and_counted(larvatus, prepared, tmp_path, data, line):
    (tmp_path / "text.txt").write_bytes(data)
    build = ["corpus", "build", tmp_path / "text.txt", "--tokenizer", prepared.train / "tokenizer", "--out"]
    code, said = larvatus(*build, tmp_path / "a")
    assert code == 4
    assert line in said
    assert larvatus(*build, tmp_path / "b", "--on-bad", "skip")[0] == 0
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert sum(manifest["skipped"].values()) == 1


def test_row_22_a_lone_surrogate_in_a_record_names_the_line(larvatus, prepared, tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "good"}\n{"text": "half \\ud800 a pair"}\n')
    arguments = ["--tokenizer", prepared.train / "tokenizer", "--out", tmp_path / "a"]
    code, said = larvatus("corpus", "build", tmp_path / "text.jsonl", *arguments)
    assert code == 4
    assert "text.jsonl:2:" in said


def test_row_22_a_word_of_megabytes_takes_linear_time(larvatus, prepared, tmp_path):
    seconds = []
    for size in (300_000, 3_000_000):
        path = tmp_path / f"{size}.txt"
        path.write_text("x" * size + "\n")
        began = time.process_time()
        arguments = ["--tokenizer", prepared.train / "tokenizer", "--out", tmp_path / f"c{size}"]
        assert larvatus("corpus", "build", path, *arguments)[0] == 0
        seconds.append(time.process_time() - began)
    assert seconds[1] < 30 * max(seconds[0], 0.05)  # quadratic would be a hundred times


def test_row_23_a_literal_mask_in_the_text_is_text(prepared, larvatus, tmp_path):
    from larvatus.data.corpus import Corpus

    (tmp_path / "text.txt").write_text("The word [MASK] is text here, and [CLS] too. So is [SEP].\n")
    arguments = ["--tokenizer", prepared.train / "tokenizer", "--out", tmp_path / "a"]
    assert larvatus("corpus", "build", tmp_path / "text.txt", *arguments)[0] == 0
    corpus = Corpus.open(tmp_path / "a")
    ids = corpus.block([0]).ids.tolist()
    assert not set(ids) & (set(corpus.tokenizer.special_ids) - {corpus.tokenizer.unk_id})


@pytest.mark.proof
def test_row_24_a_killed_loader_worker_is_named_and_a_resume_ends_bit_equal(prepared, tmp_path):
    steps = 20
    whole = command(prepared, tmp_path / "whole", steps=steps)
    assert warm.run(whole, env=environment(), capture_output=True).returncode == 0
    out = tmp_path / "run"
    run = command(prepared, out, steps=steps, workers=1, extra=["--set", "batch=16"])
    process = warm.Popen(run, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    victim = None
    while victim is None and process.poll() is None:
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        victim = next((int(pid) for pid in children.stdout.split()), None)
    os.kill(victim, signal.SIGKILL)
    said = process.communicate(timeout=WATCHDOG_S)[1]
    assert process.returncode == 1  # killed as soon as it was there, long before its work was done
    assert f"a loader worker (pid {victim}) was killed (SIGKILL" in said
    assert "--resume" in said
    resumed = warm.run([*run, "--resume"], env=environment(), capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert_bit_equal(final_weights(tmp_path / "whole"), final_weights(out))
    assert [line["step"] for line in metrics(out, "train")][-1] == steps


@given(seed=st.integers(0, 2**30), epoch=st.integers(0, 50), first=st.integers(0, 2**40))
def test_row_25_masks_are_fresh_in_every_epoch_and_for_every_sequence(seed, epoch, first):
    batch = TrainingBatch(tokens=TokenBatch.of([list(range(10, 110))] * 3), targets={})
    vocabulary = MaskVocabulary(mask_id=4, size=200, special_ids={0, 1, 2, 3, 4}, counts=np.ones(200, np.int64))
    hide = Corruption(MaskingConfig(), vocabulary, seed)
    masks = [
        tuple(part.targets[MaskedTokens].places.tolist())
        for e in (epoch, epoch + 1)
        for part in (hide(batch, e, first).cut(i, i + 1) for i in range(3))
    ]
    assert len(set(masks)) == len(masks)


def test_row_26_a_pickled_column_is_refused(pretrain, copied, tmp_path):
    shard = copied / "00000.arrow"
    with pa.OSFile(str(shard), "wb") as sink:
        table = pa.table({"ids": pa.array([b"\x80\x04cos\nsystem\n"], pa.binary())})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    manifest = read_checksummed(copied / "manifest.json", way="")
    import hashlib

    manifest["shards"][0]["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    manifest["shards"][0]["bytes"] = shard.stat().st_size
    write_checksummed(copied / "manifest.json", manifest)
    code, said = pretrain(copied)
    assert code == 4
    assert "columns" in said
    assert no_step_was_made(tmp_path)


def test_a_model_that_is_not_there_is_one_line_and_exit_5(forked):
    forked("fill", "x", "--model", "absent").refused(5, "larvatus: absent is not a directory here")
