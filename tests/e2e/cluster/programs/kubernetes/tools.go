//go:build tools

// Package tools names the programs that this module exists to build. Kubernetes cannot be installed by its own path: it requires
// its parts at v0.0.0, which no proxy has, and replaces them only for itself.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
