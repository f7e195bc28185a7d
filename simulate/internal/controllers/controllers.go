package controllers

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

const (
	firstBackOff = 5 * time.Millisecond // after a failed write, doubled each time, as in client-go's work queues
	maxBackOff   = 1000 * time.Second

	soon = time.Minute // later work counts as idle
)

// Options configure New. Config is required.
type Options struct {
	// Config is the configuration of clients of the model API server.
	Config *rest.Config
	// Delay returns how long the next write of a key waits from the moment when a change asks for it. A key looks like
	// "replicaset default/web". Delay is called only by the goroutine of Run. nil means no delay.
	Delay func(key string) time.Duration
	// Logger receives failed writes. Default: none.
	Logger *slog.Logger
}

// Controllers are the stand-ins for the controllers of one cluster. OnChange and Idle are safe for concurrent use.
type Controllers struct {
	opts  Options
	world *world
	api   *api

	wake chan struct{} // a change is pending

	// Only the goroutine of Run uses them.
	failed map[key]int        // failures since the last success
	next   map[key][]*request // of the decision that the last write began

	mu      sync.Mutex
	pending []apiserver.Change
	busy    bool // Run handles changes or a key
	due     map[key]time.Time
}

// New returns stand-ins that do nothing until Run. It sends no requests.
func New(opts Options) *Controllers {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Controllers{
		opts: opts, world: newWorld(), api: &api{cfg: opts.Config}, wake: make(chan struct{}, 1),
		due: map[key]time.Time{}, failed: map[key]int{}, next: map[key][]*request{},
	}
}

// OnChange takes a write of the server, in the order of revisions. It never blocks and may be called before Run.
func (c *Controllers) OnChange(change apiserver.Change) {
	c.mu.Lock()
	c.pending = append(c.pending, change)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Idle reports whether the controllers wait for changes only: no work is due within a minute.
func (c *Controllers) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || len(c.pending) > 0 {
		return false
	}
	until := time.Now().Add(soon)
	for _, at := range c.due {
		if !at.After(until) {
			return false
		}
	}
	return true
}

// Gaps returns what objects have asked for and the stand-ins do not have, sorted. It may be called after Run.
func (c *Controllers) Gaps() []string { return slices.Sorted(maps.Keys(c.world.gaps)) }

// Run works until ctx ends, in the calling goroutine. It may be called once. It returns nil when ctx ends.
func (c *Controllers) Run(ctx context.Context) error {
	defer c.api.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		k, wait, isSet := c.take()
		if isSet && wait <= 0 {
			c.handle(ctx, k)
			continue
		}
		var later <-chan time.Time
		if isSet {
			timer.Reset(wait)
			later = timer.C
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-later:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	return nil
}

// take learns the pending changes. It returns the key that is due first, and how long it waits. A key that waits no
// longer is removed from the queue.
func (c *Controllers) take() (k key, wait time.Duration, isSet bool) {
	c.mu.Lock()
	changes := c.pending
	c.pending, c.busy = nil, true
	c.mu.Unlock()
	for _, change := range changes {
		for _, k := range c.world.learn(change) {
			c.mark(k, c.delay(k))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	for other, at := range c.due {
		if !isSet || at.Before(first) || at.Equal(first) && other.compare(k) < 0 {
			k, first, isSet = other, at, true
		}
	}
	wait = time.Until(first)
	if c.busy = isSet && wait <= 0; c.busy {
		delete(c.due, k)
	}
	return k, wait, isSet
}

// mark makes a key due after a time, or earlier if it is due already.
func (c *Controllers) mark(k key, after time.Duration) {
	at := time.Now().Add(after)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.due[k]; !ok || at.Before(old) {
		c.due[k] = at
	}
}

func (c *Controllers) delay(k key) time.Duration {
	if c.opts.Delay == nil {
		return 0
	}
	return max(0, c.opts.Delay(k.String()))
}

// handle sends the next write of a key. The change that it causes makes keys due, and so does its failure.
func (c *Controllers) handle(ctx context.Context, k key) {
	requests := c.next[k]
	delete(c.next, k)
	if len(requests) == 0 {
		d := c.world.decide(k)
		if requests = d.requests; len(requests) == 0 {
			delete(c.failed, k)
			if !d.again.IsZero() {
				c.mark(k, time.Until(d.again))
			}
			return
		}
	}
	r := requests[0]
	switch err := c.api.send(ctx, r); {
	case ctx.Err() != nil:
	case err == nil || isFinal(err): // after a final failure, a change decides again
		if !r.isReport {
			delete(c.failed, k)
		}
		if err == nil && len(requests) > 1 {
			c.next[k] = requests[1:]
		}
		if len(c.next[k]) > 0 || r.isRead || c.hasChanged() {
			c.mark(k, c.delay(k))
		}
	default:
		c.opts.Logger.DebugContext(ctx, "cannot write", "key", k.String(), "error", err)
		if d := reportFailure(c.world, k, err); !r.isReport && len(d.requests) > 0 {
			c.next[k] = d.requests
			c.mark(k, c.delay(k))
			return
		}
		wait := min(firstBackOff<<min(c.failed[k], 20), maxBackOff)
		c.failed[k]++
		c.mark(k, c.delay(k)+wait)
	}
}

// hasChanged reports whether a change is pending.
func (c *Controllers) hasChanged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

// key is one piece of work: the object, and the controller that acts on it.
type key struct{ controller, resource, namespace, name string }

// The controllers.
const (
	ofClaim       = "claim"
	ofDaemonSet   = "daemonset"
	ofDeployment  = "deployment"
	ofEndpoints   = "endpoints"
	ofGarbage     = "garbage"
	ofJob         = "job"
	ofNamespace   = "namespace"
	ofPod         = "pod"
	ofJobPod      = "jobpod"
	ofReplicaSet  = "replicaset"
	ofStatefulSet = "statefulset"
	ofVolume      = "volume"
)

// resourceOf names the resource whose objects a controller acts on. The garbage collector acts on all.
var resourceOf = map[string]string{
	ofClaim: claims, ofDaemonSet: daemonSets, ofDeployment: deployments, ofEndpoints: services, ofJob: jobs,
	ofJobPod: pods, ofNamespace: namespaces, ofPod: pods, ofReplicaSet: replicaSets, ofStatefulSet: statefulSets,
	ofVolume: volumes,
}

func keyOf(controller string, o *object) key { return key{controller, o.resource, o.namespace, o.name} }

// String returns a key as "replicaset default/web". The garbage collector's key also has the resource.
func (k key) String() string {
	s := k.controller + " "
	if k.controller == ofGarbage {
		s += k.resource + " "
	}
	if k.namespace != "" {
		s += k.namespace + "/"
	}
	return s + k.name
}

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.controller, other.controller), strings.Compare(k.resource, other.resource),
		strings.Compare(k.namespace, other.namespace), strings.Compare(k.name, other.name))
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), strings.Compare)
}
