"""The HTTP server: every task of loaded models at one address (`larvatus serve DIR`); see docs/serve.md.

    app = build_app([load("runs/law")], ServeSettings())     # `larvatus.interfaces.serve.app`: a FastAPI application

`batcher.py` queues requests and collects their batches into forward passes, `served_models.py` knows which operations
each model supports, `operations/` implements them, `server.py` joins these, `app.py` and `middleware/` are HTTP.
"""
