//go:build tools

// Package tools names the programs that this module exists to build: Flux replaces modules in its own go.mod files, which are not
// read where they are required, so `go install` of their paths fails. This module repeats the replacements.
package tools

import (
	_ "github.com/fluxcd/helm-controller/api/v2"
	_ "github.com/fluxcd/kustomize-controller"
	_ "github.com/fluxcd/source-controller"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)
