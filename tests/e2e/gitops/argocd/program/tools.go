//go:build tools

// Package tools names the program that this module exists to build: Argo CD replaces modules in its own go.mod, which is not read
// where it is required, so `go install` of its path fails. This module repeats the replacements.
package tools

import _ "github.com/argoproj/argo-cd/v3/cmd"
