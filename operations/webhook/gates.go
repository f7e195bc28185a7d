package webhook

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// gates holds the gate of each endpoint that a permit was requested for. Its lock guards only the map; no gate is used
// under it.
type gates struct {
	mu sync.Mutex
	of map[string]*gate // by endpoint
}

// add returns the gate of an endpoint, which is g if there is none yet.
func (a *gates) add(endpoint string, g *gate) *gate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.of[endpoint]; known != nil {
		return known
	}
	if a.of == nil {
		a.of = map[string]*gate{}
	}
	a.of[endpoint] = g
	return g
}

// find returns the gate of an endpoint, or nil.
func (a *gates) find(endpoint string) *gate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[endpoint]
}

// forget drops the gate of an endpoint. Its permits still count there, and no longer for the endpoint.
func (a *gates) forget(endpoint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, endpoint)
}

// vacate drops the gates of the namespaces for which of returns true.
func (a *gates) vacate(of func(namespace string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.of, func(endpoint string, _ *gate) bool {
		namespace, _, _ := strings.Cut(endpoint, "/")
		return of(namespace)
	})
}

// within returns the gates of a namespace by endpoint, or all if it is empty.
func (a *gates) within(namespace string) map[string]*gate {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := make(map[string]*gate)
	for endpoint, g := range a.of {
		if namespace == "" || strings.HasPrefix(endpoint, namespace+"/") {
			found[endpoint] = g
		}
	}
	return found
}

// states returns the states of the endpoints of a namespace, or of all if it is empty, by namespace and name.
func (a *gates) states(namespace string) []TargetState {
	found := a.within(namespace)
	all := make([]TargetState, 0, len(found))
	for endpoint, g := range found {
		of, name, _ := strings.Cut(endpoint, "/")
		all = append(all, g.state(of, name))
	}
	slices.SortFunc(all, func(a, b TargetState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Webhook, b.Webhook))
	})
	return all
}

// breakers counts the endpoints by breaker state. The result contains every state.
func (a *gates) breakers() map[BreakerState]int {
	count := map[BreakerState]int{Closed: 0, Open: 0, HalfOpen: 0}
	for _, g := range a.within("") {
		count[g.breakerStatus().State]++
	}
	return count
}
