"""`make test`, `make test-all` and `make test-deps`: which tests run, what they need, and what came of them.

`suites.py` is the list, `needs.py` says what is missing here, `debian.py` installs it, `builds.py` builds what suites share,
`shards.py` divides a suite among machines, `running.py` runs pytest, and `__main__.py` is the command.
"""
