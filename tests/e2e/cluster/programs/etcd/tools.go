//go:build tools

// Package tools names the program that this module exists to build: Debian 12's etcd 3.4.23 leaves the watch cache of this
// API server without progress after a restart ("Too large resource version").
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
