"""The commands as Python functions: each is one call, and its settings are those of the command.

    import larvatus as lv

    model = lv.pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
    tagger = lv.finetune("tag", model, train=frame, dev="dev.conll", crf=True)      # a DataFrame, a list, a file
    scores = lv.evaluate(tagger, data="test.conll")
    table = lv.compare(["bert", "roberta"], corpus="judgments/", out="runs/compare", size="tiny", steps=1_000)

`larvatus.inference.model` holds the methods of a loaded model; it imports none of this.
"""
