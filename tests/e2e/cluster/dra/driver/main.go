// A DRA driver for tests. To kubelet and the API server it is NVIDIA's, of version 0.5.0: same name, slices, checkpoint and
// prepared devices. It knows its devices from a file, which is written before it starts, as NVIDIA's reads NVML when it starts.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

const (
	name   = "gpu.nvidia.com"
	folder = kubeletplugin.KubeletPluginsDir + "/" + name
)

func main() {
	node := flag.String("node", "", "name of the node")
	kubeconfig := flag.String("kubeconfig", "", "file by which the API server is found")
	devices := flag.String("devices", "", "file with the devices of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *node, *kubeconfig, *devices); err != nil {
		klog.ErrorS(err, "cannot go on")
		os.Exit(1)
	}
}

// Serves until it is told to end. Its slices stay then: kubelet removes them, half a minute later.
func run(ctx context.Context, node, kubeconfig, devices string) error {
	text, err := os.ReadFile(devices)
	if err != nil {
		return err
	}
	var known inventory
	if err := json.Unmarshal(text, &known); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	if known.OnDemand {
		if err := removeUnknown(); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	plugin, err := kubeletplugin.Start(ctx, &driver{known: known},
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node), kubeletplugin.DriverName(name))
	if err != nil {
		return err
	}
	defer plugin.Stop()
	pools := map[string]resourceslice.Pool{node: {Slices: known.slices()}}
	if err := plugin.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
