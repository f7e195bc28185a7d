package controller

import (
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// clusterRanges holds the address ranges of services and pods. It is safe for concurrent use.
type clusterRanges struct {
	published atomic.Pointer[[]netip.Prefix] // the values of byResource, sorted

	mu         sync.Mutex // guards byResource
	byResource map[string][]netip.Prefix
}

func newClusterRanges() *clusterRanges {
	return &clusterRanges{byResource: map[string][]netip.Prefix{}}
}

// all returns all ranges. The caller must not change the slice.
func (r *clusterRanges) all() []netip.Prefix {
	if all := r.published.Load(); all != nil {
		return *all
	}
	return nil
}

// set replaces the ranges of the objects of one resource.
func (r *clusterRanges) set(resource string, prefixes []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byResource[resource] = prefixes
	var all []netip.Prefix
	for _, some := range r.byResource {
		all = append(all, some...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	all = slices.Compact(all)
	r.published.Store(&all)
}

// podCIDRs returns the pod ranges of a Node.
func podCIDRs(raw []byte) ([]string, error) {
	var node struct {
		Spec corev1.NodeSpec `json:"spec"`
	}
	err := json.Unmarshal(raw, &node)
	return append(node.Spec.PodCIDRs, node.Spec.PodCIDR), err
}

// serviceRanges returns the ranges of a ServiceCIDR.
func serviceRanges(raw []byte) ([]string, error) {
	var cidr struct {
		Spec networkingv1.ServiceCIDRSpec `json:"spec"`
	}
	err := json.Unmarshal(raw, &cidr)
	return cidr.Spec.CIDRs, err
}
