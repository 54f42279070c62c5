# `make sandbox` and `make test` need only Python 3.11 and make: the rest is fetched, built and started on the way.

# As they were typed, with quotes and dollars; recipes read them from the environment, where nothing expands them again.
override export CMD := $(value CMD)
override export WORKSPACE := $(value WORKSPACE)

.PHONY: help sandbox test check images gvisor speech init seccomp docs attacks security fuzz faults toolchains soak bench clean venv

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
	@echo
	@echo "  make sandbox CMD='pytest -q' WORKSPACE=path runs one command there. If it fails with status N, make says"
	@echo "  'Error N' and ends with 2, as it always does; .venv/bin/sandbox run -w path -c 'pytest -q' ends with N itself."

sandbox: images ## a shell in a sandbox on the current folder; without a terminal, a demonstration
	@if [ -n "$$CMD" ]; then .venv/bin/sandbox run -w "$${WORKSPACE:-.}" -c "$$CMD"; \
	elif [ -t 0 ] && [ -t 1 ]; then .venv/bin/sandbox shell -w "$${WORKSPACE:-.}"; \
	else .venv/bin/python setup/demo.py; fi

# What these say of the whole engine would not hold beside others: every provider tidies up after the dead.
ALONE := tests/faults tests/sandbox/test_lifecycle.py

test: check images speech ## everything: check, unit tests, tests against a real engine
	@command -v tmux >/dev/null || setup/apt tmux
	@PYTHONHASHSEED=0 .venv/bin/pytest -m 'not docker' -n logical --ignore=tests/faults
	@PROVIDER_DOCKER=must ATTACKS_RUNTIMES=runc .venv/bin/pytest -m docker -n logical --dist loadfile $(ALONE:%=--ignore=%)
	@PROVIDER_DOCKER=must .venv/bin/pytest $(ALONE)

attacks: images ## attacks by their numbers, each with what must not happen; ATTACKS=long for the long race
	@PROVIDER_DOCKER=must .venv/bin/pytest tests/attacks

security: images ## the attacks once more, and their results into SECURITY.md
	@ATTACKS_RESULTS=tests/attacks/results/$(or $(ATTACKS_RUNTIMES),runc).json ATTACKS_RUNTIMES=$(or $(ATTACKS_RUNTIMES),runc) \
	PROVIDER_DOCKER=must .venv/bin/pytest tests/attacks
	@.venv/bin/python tests/attacks/report.py SECURITY.md

fuzz: images ## a million shell strings, and bash starts nothing that policy has not judged; FUZZ=N for another number
	@FUZZ=$(FUZZ) .venv/bin/python tests/policy/fuzz.py

faults: images ## an engine of our own that is killed, paused, filled and restarted under requests; FAULTS=long for all of it
	@PROVIDER_DOCKER=must .venv/bin/pytest tests/faults

toolchains: images ## an agent's daily work, and that each of it fails without each call that it says it needs
	@TOOLCHAINS=long PROVIDER_DOCKER=must .venv/bin/pytest tests/toolchains

soak: images ## 2,000 runs, and nothing may grow; SOAK=N for another number
	@SOAK=$(or $(SOAK),2000) PROVIDER_DOCKER=must .venv/bin/pytest tests/faults/test_many.py -k test_soak

check: venv ## format, lint, types
	@.venv/bin/ruff format --check
	@.venv/bin/ruff check
	@.venv/bin/mypy

images: venv init ## the images, after finding or starting a Docker engine
	@.venv/bin/python images/build.py

gvisor: images ## gVisor's runsc as a second runtime of an engine that make has started
	@.venv/bin/python setup/gvisor.py

speech: venv init ## the image for transcription, which mk8.shell's tool calls can use
	@.venv/bin/python images/build.py speech

init: venv ## pid 1 of every sandbox, and the programs inside, compiled ahead
	@images/init/build
	@.venv/bin/python -m compileall -q provider/inside

seccomp: venv ## the seccomp profiles, from their commented source
	@.venv/bin/python seccomp/generate.py

docs: venv ## docs/mk8.md, from the verbs and their tests
	@.venv/bin/python setup/mk8_docs.py

bench: images ## the figures of the README, measured here; QUICK=1 for a short try, STRICT=1, ONLY=latency
	@bench/venv
	@bench/.venv/main/bin/python -m bench $(if $(QUICK),--quick) $(if $(STRICT),--strict) $(if $(ONLY),--only $(ONLY))

clean: ## removes what was built here; the engine and its images stay
	rm -rf .venv bench/.venv .hypothesis .mypy_cache .pytest_cache .ruff_cache provider/data/init/sandbox-init-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@setup/venv
