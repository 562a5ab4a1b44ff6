# make: what there is to do. Each target does its own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test nightly check bench man install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name what; do \
		printf '  make %-10s %s\n' "$$name" "$$what"; done

run: ## set up what is missing on this machine and show amux at work
	@packaging/system-packages.sh run
	@packaging/venv.sh .venv
	@packaging/demo.sh .venv/bin

test: ## set up and run everything: checks, all tests, each Python, oldest and newest dependencies
	@packaging/system-packages.sh test
	@packaging/test.sh

nightly: ## the slow tests: amuxd killed at every point of every scenario, a thousand lives of worktrees
	@packaging/system-packages.sh test
	@packaging/venv.sh build/venv/test --extras test,check
	@. packaging/lib.sh; tests_as_root build/venv/test/bin/pytest -m nightly

check: ## static checks alone: ruff, mypy, shellcheck
	@packaging/test.sh check

bench: ## measure amux against its floors
	@packaging/system-packages.sh test
	@packaging/venv.sh build/venv/test --extras test,check
	@. packaging/lib.sh; tests_as_root build/venv/test/bin/python -m bench

man: ## write the man pages again, from the commands and the interfaces
	@packaging/venv.sh build/venv/test --extras test,check
	@build/venv/test/bin/python packaging/make-man.py

install: ## install for this user, without root, under ~/.local; also the way to upgrade
	@packaging/install.sh

uninstall: ## take the installation away and leave the sessions' data
	@packaging/uninstall.sh

clean: ## remove what the other targets made here
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
