package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/dump"
)

// The file in which NVIDIA's driver remembers what it has prepared: the same claims in two versions, each with its checksum.
const checkpointFile = folder + "/checkpoint.json"

const (
	started   = "PrepareStarted"
	completed = "PrepareCompleted"
)

type checkpoint struct {
	Checksum uint64        `json:"checksum"`
	V1       *checkpointV1 `json:"v1,omitempty"`
	V2       *checkpointV2 `json:"v2,omitempty"`
}

type checkpointV1 struct {
	Claims map[types.UID]preparedClaimV1 `json:"preparedClaims,omitempty"`
}

type checkpointV2 struct {
	Checksum uint64                      `json:"checksum"`
	Claims   map[types.UID]preparedClaim `json:"preparedClaims,omitempty"`
	Boot     string                      `json:"nodeBootID,omitempty"`
}

type preparedClaimV1 struct {
	Status  resourceapi.ResourceClaimStatus `json:"status,omitempty"`
	Devices []*preparedGroup                `json:"preparedDevices,omitempty"`
}

type preparedClaim struct {
	State     string                          `json:"checkpointState"`
	Status    resourceapi.ResourceClaimStatus `json:"status,omitempty"`
	Devices   []*preparedGroup                `json:"preparedDevices,omitempty"`
	Name      string                          `json:"name,omitempty"`
	Namespace string                          `json:"namespace,omitempty"`
}

// Devices with one configuration: here there is never any.
type preparedGroup struct {
	Devices []preparedDevice `json:"devices"`
	Config  struct{}         `json:"configState"`
}

type preparedDevice struct {
	Gpu *preparedGpu `json:"gpu"`
	Mig *preparedMig `json:"mig"`
}

type preparedGpu struct {
	Info   *gpuInfo    `json:"info"`
	Device *toldDevice `json:"device"`
}

type preparedMig struct {
	Concrete *migInfo    `json:"concrete"`
	Device   *toldDevice `json:"device"`
}

type gpuInfo struct {
	UUID string `json:"uuid"`
}

type migInfo struct {
	ParentMinor int    `json:"parentMinor"`
	GI          int    `json:"giId"`
	CI          int    `json:"ciId"`
	UUID        string `json:"migUUID"`
	ParentUUID  string `json:"parentUUID"`
}

// What kubelet was told.
type toldDevice struct {
	Requests     []string
	PoolName     string
	DeviceName   string
	CDIDeviceIDs []string
}

func (c *preparedClaim) devices() []kubeletplugin.Device {
	found := []kubeletplugin.Device{}
	for _, group := range c.Devices {
		for _, one := range group.Devices {
			told := one.told()
			found = append(found, kubeletplugin.Device{
				Requests: told.Requests, PoolName: told.PoolName, DeviceName: told.DeviceName, CDIDeviceIDs: told.CDIDeviceIDs,
			})
		}
	}
	return found
}

func (d preparedDevice) told() *toldDevice {
	if d.Mig != nil {
		return d.Mig.Device
	}
	return d.Gpu.Device
}

// Makes the file where there is none, or one of a former boot: what it says is prepared is not, then.
func begin() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	known, err := read()
	if os.IsNotExist(err) || err == nil && known.V2.Boot != boot {
		return write(map[types.UID]preparedClaim{})
	}
	return err
}

func preparedClaims() (map[types.UID]preparedClaim, error) {
	known, err := read()
	if err != nil {
		return nil, err
	}
	if known.V2.Claims == nil {
		return map[types.UID]preparedClaim{}, nil
	}
	return known.V2.Claims, nil
}

func read() (*checkpoint, error) {
	text, err := os.ReadFile(checkpointFile)
	if err != nil {
		return nil, err
	}
	known := checkpoint{V2: &checkpointV2{}}
	return &known, json.Unmarshal(text, &known)
}

func write(claims map[types.UID]preparedClaim) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	made := checkpoint{V1: &checkpointV1{Claims: map[types.UID]preparedClaimV1{}}}
	for uid, claim := range claims {
		if claim.State == completed {
			made.V1.Claims[uid] = preparedClaimV1{Status: claim.Status, Devices: claim.Devices}
		}
	}
	// The outer checksum is of the first version alone.
	if made.Checksum, err = checksum(made); err != nil {
		return err
	}
	made.V2 = &checkpointV2{Claims: claims, Boot: boot}
	if made.V2.Checksum, err = checksum(made.V2); err != nil {
		return err
	}
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return replace(checkpointFile, text)
}

// As kubelet computes those of its own checkpoints.
func checksum(value any) (uint64, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%v", dump.ForHash(text))
	return uint64(hash.Sum32()), nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// Whoever reads meanwhile finds the whole file, old or new. containerd reads all that end in .yaml.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fresh := path + ".fresh"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
