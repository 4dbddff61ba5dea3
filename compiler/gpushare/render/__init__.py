"""Plan → Artifacts: a module for each output, combined in `bundle_files`; subpackages hold what several of them use."""
