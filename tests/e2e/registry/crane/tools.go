//go:build tools

// Package tools names the program that this module exists to build, with the versions of go.sum.
package tools

import (
	_ "github.com/google/go-containerregistry/cmd/crane"
)
