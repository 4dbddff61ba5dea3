package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// What Python has read of the node's GPUs.
type inventory struct {
	Devices []device `json:"devices"`
	// Whether MIG instances are made on demand, and what each GPU has to give to them.
	OnDemand bool                     `json:"onDemand"`
	Counters []resourceapi.CounterSet `json:"counters"`
	// What every container with a device gets: the driver's files.
	Edits edits `json:"edits"`
}

type device struct {
	Device resourceapi.Device `json:"device"`
	UUID   string             `json:"uuid"`
	Minor  int                `json:"minor"`
	// As the checkpoint has it, or where an instance is made: one of the three.
	Gpu   *gpuInfo `json:"gpu"`
	Mig   *migInfo `json:"mig"`
	Place *place   `json:"place"`
}

// The parts of the Container Device Interface's format that are used here.
type edits struct {
	Env    []string          `json:"env,omitempty"`
	Mounts []json.RawMessage `json:"mounts,omitempty"`
}

type cdiDevice struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type cdiSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []cdiDevice `json:"devices"`
	Edits   edits       `json:"containerEdits"`
}

const (
	cdiKind   = "k8s.gpu.nvidia.com/claim"
	cdiFolder = "/var/run/cdi"
)

func cdiFile(claim types.UID) string {
	return fmt.Sprintf("%s/k8s.gpu.nvidia.com-claim_%s.yaml", cdiFolder, claim)
}

// The calls of kubelet come one at a time: the helper sees to that.
type driver struct{ known inventory }

func (d *driver) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = d.unprepare(claim.UID)
	}
	return results, nil
}

func (d *driver) HandleError(ctx context.Context, err error, text string) {
	runtime.HandleErrorWithContext(ctx, err, text)
}

// Prepares the claim; if that is done already, only says its devices.
func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	claims, err := preparedClaims()
	if err != nil {
		return nil, err
	}
	former, isKnown := claims[claim.UID]
	if isKnown && former.State == completed {
		return former.devices(), nil
	}
	if err := d.refusal(claim, claims); err != nil {
		return nil, err
	}
	claims[claim.UID] = preparedClaim{State: started, Status: claim.Status, Name: claim.Name, Namespace: claim.Namespace}
	if err := write(claims); err != nil {
		return nil, err
	}
	group := preparedGroup{}
	spec := cdiSpec{Version: "0.6.0", Kind: cdiKind, Edits: d.known.Edits}
	for _, result := range ours(claim.Status) {
		known := d.find(result.Device)
		if known == nil {
			return nil, fmt.Errorf("allocatable not found for device %q", result.Device)
		}
		if known.Place != nil {
			made, err := known.make(isKnown)
			if err != nil {
				return nil, fmt.Errorf("error creating %s: %w", result.Device, err)
			}
			known = &device{Device: known.Device, UUID: made.UUID, Mig: made}
		}
		inCDI := fmt.Sprintf("%s-%s", claim.UID, result.Device)
		visible := []string{"NVIDIA_VISIBLE_DEVICES=" + known.UUID}
		spec.Devices = append(spec.Devices, cdiDevice{Name: inCDI, Edits: edits{Env: visible}})
		told := &toldDevice{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{cdiKind + "=" + inCDI},
		}
		group.Devices = append(group.Devices, known.prepared(told))
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := replace(cdiFile(claim.UID), text); err != nil {
		return nil, err
	}
	// The name is not kept, by NVIDIA's either.
	done := preparedClaim{State: completed, Status: claim.Status, Devices: []*preparedGroup{&group}}
	claims[claim.UID] = done
	return done.devices(), write(claims)
}

// A device that is not shared is prepared for one claim at a time, whatever the scheduler says.
func (d *driver) refusal(claim *resourceapi.ResourceClaim, claims map[types.UID]preparedClaim) error {
	for uid, other := range claims {
		if uid == claim.UID || other.State != completed {
			continue
		}
		for _, result := range ours(claim.Status) {
			known := d.find(result.Device)
			isShared := known != nil && known.Device.AllowMultipleAllocations != nil
			for _, taken := range ours(other.Status) {
				if taken.Device == result.Device && !isShared {
					return fmt.Errorf("requested device %s is already allocated to different claim %s", result.Device, uid)
				}
			}
		}
	}
	return nil
}

func (d *driver) unprepare(claim types.UID) error {
	claims, err := preparedClaims()
	if err != nil {
		return err
	}
	if _, ok := claims[claim]; !ok {
		return nil
	}
	if d.known.OnDemand {
		if err := d.remove(claims, claim); err != nil {
			return err
		}
	}
	if err := os.Remove(cdiFile(claim)); err != nil && !os.IsNotExist(err) {
		return err
	}
	delete(claims, claim)
	return write(claims)
}

func (d *driver) find(name string) *device {
	for number := range d.known.Devices {
		if d.known.Devices[number].Device.Name == name {
			return &d.known.Devices[number]
		}
	}
	return nil
}

func (d *device) prepared(told *toldDevice) preparedDevice {
	if d.Mig != nil {
		return preparedDevice{Mig: &preparedMig{Concrete: d.Mig, Device: told}}
	}
	return preparedDevice{Gpu: &preparedGpu{Info: d.Gpu, Device: told}}
}

// The results of an allocation that are this driver's.
func ours(status resourceapi.ResourceClaimStatus) []resourceapi.DeviceRequestAllocationResult {
	found := []resourceapi.DeviceRequestAllocationResult{}
	if status.Allocation == nil {
		return found
	}
	for _, result := range status.Allocation.Devices.Results {
		if result.Driver == name {
			found = append(found, result)
		}
	}
	return found
}
