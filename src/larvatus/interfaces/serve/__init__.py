"""The server: every task of loaded models behind one address (`larvatus serve DIR`); see docs/serve.md.

    app = build_app([load("runs/law")], ServeSettings())     # `larvatus.interfaces.serve.app`: a FastAPI application

`passes.py` joins the batches of all waiting requests into passes of the encoder, `work.py` has the queue and the
threads that requests run in, `served_models.py` says what each model can do, `operations/` does it, `server.py` puts
these together, `routes/` has the addresses.
"""
