# Three commands do everything: `make demo`, `make studio` and `make test`. Each makes .venv itself; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt

# with bytecode kept: a test that starts Python would compile the sources anew each time
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo studio test proof browser lint keywords docs bench locked clean

demo: .venv/core
	$(BIN)/larvatus demo

# a page in the browser, with the packaged model; make studio MODEL=runs/mine shows another
studio: .venv/studio
	$(BIN)/larvatus studio $(MODEL)

test: .venv/dev
	$(BIN)/pytest -n 2 --dist worksteal --durations=30

# what takes minutes: learning that only shows after a thousand steps, kill storms, each defence taken out in a copy, and
# all examples of hypothesis, of which `make test` tries a fifth
proof: .venv/dev
	LARVATUS_EXAMPLES=1 $(BIN)/pytest -n 2 --dist worksteal --durations=30 -m 'proof or hypothesis'

# the pages and the studio in a real browser; what is missing is installed, or fails, and nothing is skipped
browser: .venv/browser
	LARVATUS_BROWSER=required $(BIN)/pytest tests/interfaces/browser tests/interfaces/studio/browser tests/interfaces/studio/test_export.py -m 'proof or not proof'

lint: .venv/dev
	$(BIN)/ruff check src tests benchmarks packages
	$(BIN)/ruff format --check src tests benchmarks packages
	$(BIN)/mypy
	$(BIN)/lint-imports

# the keyword types of the public functions, from their settings structs
keywords: .venv/dev
	$(BIN)/python -m tests.interfaces.keyword_types
	$(BIN)/ruff format -q src/larvatus/interfaces/api/keywords.py src/larvatus/inference/model/keywords.py

# a site in site/; a broken link or reference is an error. Zensical is the successor of Material for MkDocs, which has ended, by its
# authors; it reads mkdocs.yml as it is, so that MkDocs remains a way back
docs: .venv/docs
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/hooks/equations.py site
	$(BIN)/python docs/hooks/notebooks.py docs site

# make bench TEXT=big.txt.xz: building a corpus needs 200 MB of real text to be measured on; training does not
bench: .venv/bench
	$(BIN)/python benchmarks/train_speed.py $(if $(TEXT),--text $(TEXT))
	$(if $(TEXT),$(BIN)/python benchmarks/embed_speed.py --text $(TEXT),@echo "embed_speed: give real text: make bench TEXT=file")
	$(if $(TEXT),$(BIN)/python benchmarks/loader_speed.py --text $(TEXT),@echo "loader_speed: give real text: make bench TEXT=file")
	$(if $(TEXT),$(BIN)/python benchmarks/corpus_build.py --text $(TEXT),@echo "corpus_build: give 200 MB of text: make bench TEXT=file")
	$(BIN)/python benchmarks/crf_speed.py

# what the tests need, each package checked by its hash
locked: .venv/bin/pip
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .

clean:
	rm -rf .venv runs build dist site

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/pip pyproject.toml constraints.txt
	$(INSTALL) --editable .
	touch $@

.venv/studio: .venv/core
	$(INSTALL) --editable '.[studio]'
	touch $@

.venv/dev: .venv/core
	$(INSTALL) --editable '.[test,lint]'
	touch $@

# chromium is the system's (on Debian apt-get installs it, as root), axe-core npm's
.venv/browser: .venv/dev
	$(INSTALL) --editable '.[browser]'
	command -v chromium || command -v chromium-browser || command -v google-chrome || { apt-get update && apt-get install --yes chromium; }
	npm install --silent --no-save --prefix .venv/npm axe-core@4.14.0 onnxruntime-web@1.30.0
	touch $@

.venv/docs: .venv/core
	$(INSTALL) --editable '.[docs]'
	touch $@

.venv/bench: .venv/dev
	$(INSTALL) --editable '.[bench]'
	touch $@
