# The server as an image, for x86-64 and ARM64:
#
#     docker build -t larvatus .
#     openssl rand -hex 32 > keys.txt
#     docker run -p 127.0.0.1:8311:8311 -v "$PWD/runs:/models:ro" -v "$PWD/keys.txt:/run/secrets/larvatus-keys:ro" \
#         larvatus /models/law /models/tagger
#
# docs/serve_clients.md says more. Builds of torch without CUDA, which are smaller, come from an index of its makers:
# --build-arg PIP_EXTRA_INDEX_URL=… names it.

FROM python:3.11-slim AS build
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/larvatus && /opt/larvatus/bin/pip install --no-cache-dir --constraint constraints.txt ".[studio]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent larvatus
COPY --from=build /opt/larvatus /opt/larvatus
ENV PATH="/opt/larvatus/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /models
EXPOSE 8311
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=15s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8311/healthz', timeout=10)"]
ENTRYPOINT ["larvatus", "serve", "--host", "0.0.0.0", "--port", "8311", "--key-file", "/run/secrets/larvatus-keys"]
