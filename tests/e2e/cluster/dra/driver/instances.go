package main

import (
	"encoding/json"
	"errors"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// A place for an instance, which is made there on demand.
type place struct {
	GPU     string `json:"gpu"`
	Minor   int    `json:"minor"`
	Profile int    `json:"profile"`
	Start   int    `json:"start"`
}

// What Python is asked to do with NVML: make an instance, remove those at a place, or remove all but some.
type order struct {
	Make   *place   `json:"make,omitempty"`
	Clear  *place   `json:"clear,omitempty"`
	Remove string   `json:"remove,omitempty"`
	Keep   []string `json:"keep,omitempty"`
}

const instancesSocket = "/run/nvidia/dra-instances.sock"

// The answer is an instance where one was made, or why it was not.
func ask(wanted order) (*migInfo, error) {
	connection, err := net.DialTimeout("unix", instancesSocket, time.Second)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(wanted); err != nil {
		return nil, err
	}
	answer := struct {
		Problem  string   `json:"problem"`
		Instance *migInfo `json:"instance"`
	}{}
	if err := json.NewDecoder(connection).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Problem != "" {
		return nil, errors.New(answer.Problem)
	}
	return answer.Instance, nil
}

// Removes all instances that are of no prepared claim, as NVIDIA's does when it starts. The other program may need a moment.
func removeUnknown() error {
	claims, err := preparedClaims()
	if err != nil {
		return err
	}
	known := []string{""}
	for _, claim := range claims {
		for _, uuid := range claim.instances() {
			known = append(known, uuid)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err = ask(order{Keep: known}); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Makes the instance of a device on demand for a claim. A first try that did not come to its end may have left one there.
func (d *device) make(isAgain bool) (*migInfo, error) {
	if isAgain {
		if _, err := ask(order{Clear: d.Place}); err != nil {
			return nil, err
		}
	}
	return ask(order{Make: d.Place})
}

// Removes the instances of a claim; if it is not prepared to its end, those at its places.
func (d *driver) remove(claims map[types.UID]preparedClaim, uid types.UID) error {
	claim := claims[uid]
	if claim.State == completed {
		for _, uuid := range claim.instances() {
			if _, err := ask(order{Remove: uuid}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, result := range ours(claim.Status) {
		if known := d.find(result.Device); known != nil && known.Place != nil && !isTaken(claims, uid, result.Device) {
			if _, err := ask(order{Clear: known.Place}); err != nil {
				return err
			}
		}
	}
	return nil
}

func isTaken(claims map[types.UID]preparedClaim, claim types.UID, device string) bool {
	for uid, other := range claims {
		for _, result := range ours(other.Status) {
			if uid != claim && other.State == completed && result.Device == device {
				return true
			}
		}
	}
	return false
}

func (c *preparedClaim) instances() []string {
	found := []string{}
	for _, group := range c.Devices {
		for _, one := range group.Devices {
			if one.Mig != nil {
				found = append(found, one.Mig.Concrete.UUID)
			}
		}
	}
	return found
}

// The slices of the node. Where instances are made on demand, one with what the GPUs have to give, and then one for each GPU.
func (i *inventory) slices() []resourceslice.Slice {
	found := []resourceslice.Slice{{SharedCounters: i.Counters}}
	last := -1
	for _, one := range i.Devices {
		if i.OnDemand && one.Minor != last {
			found = append(found, resourceslice.Slice{})
			last = one.Minor
		}
		own := &found[len(found)-1]
		own.Devices = append(own.Devices, one.Device)
	}
	return found
}
