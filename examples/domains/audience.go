package main

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/observe"
)

// Selectors of the audience and the kubelet.
var (
	domains = observe.Selector("domains")
	pods    = observe.Selector("pods")
)

// audience plays the users: it creates and changes domains and observes their status.
type audience struct {
	rt *fairlead.Runtime

	mu      sync.Mutex
	domains map[client.Key]*Domain
	pods    map[client.Key]*corev1.Pod
	changed chan struct{} // closed and replaced at each change
}

func newAudience(cfg *rest.Config, watch ...cache.Option) (*audience, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	a := &audience{
		rt:      fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithFieldOwner("audience")),
		domains: map[client.Key]*Domain{}, pods: map[client.Key]*corev1.Pod{}, changed: make(chan struct{}),
	}
	observe.Source[Domain](a.rt, domains, watch...)
	observe.Source[corev1.Pod](a.rt, pods, watch...)
	observe.On(a.rt, domains, func(_ context.Context, e observe.Event[Domain]) error {
		note(a, a.domains, e)
		return nil
	})
	observe.On(a.rt, pods, func(_ context.Context, e observe.Event[corev1.Pod]) error {
		note(a, a.pods, e)
		return nil
	})
	return a, nil
}

func note[T any](a *audience, m map[client.Key]*T, e observe.Event[T]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.Type {
	case observe.Deleted:
		delete(m, e.Key)
	case observe.Added, observe.Modified:
		m[e.Key] = e.Object()
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// await returns when cond returns true for the observed objects. cond is called with the lock held.
func (a *audience) await(
	ctx context.Context, cond func(domains map[client.Key]*Domain, pods map[client.Key]*corev1.Pod) bool,
) error {
	for {
		ok, changed := a.ask(cond)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot go on: %w: %s", context.Cause(ctx), a.summary())
		}
	}
}

func (a *audience) ask(
	cond func(domains map[client.Key]*Domain, pods map[client.Key]*corev1.Pod) bool,
) (bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cond(a.domains, a.pods), a.changed
}

// available returns the number of the domains that are available.
func (a *audience) available(keys []client.Key) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return countAvailable(a.domains, keys)
}

func countAvailable(domains map[client.Key]*Domain, keys []client.Key) (n int) {
	for _, key := range keys {
		if d := domains[key]; d != nil && d.Status.Phase == phaseAvailable && d.Status.ObservedGeneration == d.Generation &&
			atRest(d) {
			n++
		}
	}
	return n
}

// atRest reports whether a domain has no active fiber.
func atRest(d *Domain) bool { return d.Status.Flow == nil || d.Status.Flow.Ended }

// awaitAvailable returns when n of the domains are available.
func (a *audience) awaitAvailable(ctx context.Context, keys []client.Key, n int) error {
	return a.await(ctx, func(domains map[client.Key]*Domain, _ map[client.Key]*corev1.Pod) bool {
		return countAvailable(domains, keys) >= n
	})
}

// summary counts the domains by phase and step.
func (a *audience) summary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := map[string]int{}
	for _, d := range a.domains {
		where := d.Status.Phase
		if p := d.Status.Flow; !atRest(d) {
			where += " at " + p.Flow + "/" + p.Step
		}
		count[where]++
	}
	return fmt.Sprint(count)
}

func namespaceName(prefix string, n int) string { return fmt.Sprintf("%s-%02d", prefix, n) }

// create creates namespaces and domains in them, and returns the keys of the domains.
func (a *audience) create(
	ctx context.Context, prefix string, namespaces, each int, spec DomainSpec,
) ([]client.Key, error) {
	var keys []client.Key
	for n := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(prefix, n)}}
		if err := a.rt.Client().Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		for i := range each {
			keys = append(keys, client.Key{Namespace: ns.Name, Name: fmt.Sprintf("domain-%02d", i)})
		}
	}
	return keys, a.each(ctx, keys, func(ctx context.Context, key client.Key) error {
		d := &Domain{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec}
		return a.rt.Client().Create(ctx, d)
	})
}

// change changes the spec of domains.
func (a *audience) change(ctx context.Context, keys []client.Key, fn func(*DomainSpec)) error {
	return a.each(ctx, keys, func(ctx context.Context, key client.Key) error {
		d := &Domain{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		return client.Modify(ctx, a.rt.Client(), d, func(d *Domain) error { fn(&d.Spec); return nil })
	})
}

// remove deletes domains and their pods, since the control plane has no garbage collector.
func (a *audience) remove(ctx context.Context, keys []client.Key) error {
	return a.each(ctx, keys, func(ctx context.Context, key client.Key) error {
		d := &Domain{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := a.rt.Client().Delete(ctx, d, client.IgnoreNotFound()); err != nil {
			return err
		}
		return a.rt.Client().DeleteCollection(ctx, &corev1.Pod{},
			client.Selection{Namespace: key.Namespace, Labels: domainLabel + "=" + key.Name})
	})
}

func (a *audience) each(ctx context.Context, keys []client.Key, fn func(context.Context, client.Key) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, key := range keys {
		g.Go(func() error { return fn(ctx, key) })
	}
	return g.Wait()
}

func (s *story) until(ctx context.Context, cond func(map[client.Key]*Domain) bool) error {
	return s.a.await(ctx, func(domains map[client.Key]*Domain, _ map[client.Key]*corev1.Pod) bool { return cond(domains) })
}
