"""Lines of intents that several tests share."""

PLATFORM = """\
  kubernetes: "1.33"
  namespace: gpu-system
  platform:
    stack: gpu-operator
    version: v26.7.0
"""
"""The beginning of a spec: where the bundle goes, and onto which stack."""
