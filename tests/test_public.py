"""The public interface is what `larvatus.__all__` says, and the command line has the flags it is known to have."""

import subprocess
import sys

import larvatus

PUBLIC = {
    *("Fill", "Fills", "JointFill", "LarvatusError", "Model", "Recipe", "TokenBatch", "Tokenizer"),
    *("__version__", "load", "read_recipe"),
    *(
        "ablate",
        "bench",
        "build_corpus",
        "card",
        "check_corpus",
        "check_data",
        "compare",
        "contamination",
        "convert",
        "distil_static",
        "embed_files",
        "evaluate",
        "evaluate_suite",
        "export_onnx",
        "finetune",
        "plan",
        "pretrain",
        "prompt",
        "train_lens",
        "train_tokenizer",
        "transfer",
        "verify_card",
    ),
    *(
        "build_index",
        "build_senses",
        "fit_standardiser",
        "head_importance",
        "knockout",
        "measure_faithfulness",
        "measure_isotropy",
        *("amnesic_probe", "probe"),
        "score_pairs",
        "serve_models",
    ),
    *("Vectors",),
    *("Index", "SearchResults", "index_documents", "search"),
    "MtebEncoder",
    *("Client",),
    *("Score",),
    *("Continuation", "Generated"),
    *("Concordance", "Similarities", "Standardiser"),
    *("Chosen", "Classified", "Entity", "Tagged", "TextClassifier", "WordTagger"),
    *("Answer", "Spanned", "Written"),
    *("PromptTable",),
    *("SparseFeatures", "train_features"),
    *("BiasReport", "audit_bias"),
    *("audit_leaks", "audit_toxicity", "split_members"),
}


def test_the_public_interface_is_this_and_no_more():
    assert set(larvatus.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(larvatus, name) is not None


def test_importing_the_package_or_a_text_room_does_not_load_torch():
    code = (
        "import sys, larvatus, larvatus.data.text.tokenizer, larvatus.data.text.readers, larvatus.data.corpus.encode; "
        "import larvatus.interfaces.client; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
