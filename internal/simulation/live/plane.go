package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// plane is a control plane with the kinds of the subject. A follower knows its objects.
type plane struct {
	cluster  *cluster.Cluster
	config   *rest.Config
	follower *follower

	cancel    context.CancelFunc
	following sync.WaitGroup

	mu        sync.Mutex
	resources []apiserver.Resource // replaced as a whole
	adopted   map[types.UID]bool   // definitions that came later
}

// definitions is the resource of CustomResourceDefinitions.
var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// settled is how long a new control plane must change nothing before it is used.
const settled = 500 * time.Millisecond

// listed is how long the API server may take to list the kind of an established definition.
const listed = time.Minute

// newPlane starts a control plane. ctx bounds the start.
func newPlane(ctx context.Context, crds []*unstructured.Unstructured, progress io.Writer) (*plane, error) {
	var resources []apiserver.Resource
	c, err := cluster.Start(ctx, cluster.Options{
		ControllerManager: true, Kubelet: true, Progress: progress,
		Prepare: func(ctx context.Context, cfg *rest.Config) (err error) {
			cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
			resources, err = define(ctx, cfg, crds)
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start a control plane: %w", err)
	}
	follow, cancel := context.WithCancel(context.Background())
	p := &plane{cluster: c, config: c.Config(), resources: resources, adopted: map[types.UID]bool{}, cancel: cancel}
	p.config.QPS, p.config.WarningHandler = -1, rest.NoWarnings{}
	if err := p.prepare(ctx, follow); err != nil {
		p.close()
		return nil, fmt.Errorf("cannot prepare a control plane: %w", err)
	}
	return p, nil
}

func (p *plane) close() {
	p.cancel()
	p.following.Wait()
	p.cluster.Stop()
}

func (p *plane) prepare(ctx, follow context.Context) error {
	client, err := dynamic.NewForConfig(p.config)
	if err != nil {
		return err
	}
	p.follower = newFollower(client)
	p.follower.defined = func(crd *unstructured.Unstructured) {
		if p.isNew(crd) {
			p.following.Go(func() { p.adopt(follow, crd) })
		}
	}
	var listed sync.WaitGroup
	for _, res := range p.served() {
		if followed(res) {
			listed.Add(1)
			p.following.Go(func() { p.follow(follow, res, listed.Done) })
		}
	}
	listed.Wait()
	// A pod needs the service account, and the namespace controller writes the other object last.
	err = p.follower.until(ctx, func() bool {
		return p.follower.has("serviceaccounts", "default", "default") &&
			p.follower.has("configmaps", "default", "kube-root-ca.crt")
	})
	if err != nil {
		return fmt.Errorf("the namespace default has no service account: %w", err)
	}
	if err := p.follower.quiet(ctx, settled); err != nil {
		return err
	}
	return p.follower.failure()
}

// served returns what the API server serves. The caller must not change it.
func (p *plane) served() []apiserver.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resources
}

// follow follows a resource until ctx ends or it is not served any more. listed is called after the first list.
func (p *plane) follow(ctx context.Context, res apiserver.Resource, listed func()) {
	if p.follower.follow(ctx, res, listed); ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.resources = slices.DeleteFunc(slices.Clone(p.resources), func(other apiserver.Resource) bool {
			return other.GVR() == res.GVR()
		})
	}
}

// isNew reports whether a definition came after the start, and has not been adopted.
func (p *plane) isNew(crd *unstructured.Unstructured) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.adopted[crd.GetUID()] || lists(p.resources, crd) {
		return false
	}
	p.adopted[crd.GetUID()] = true
	return true
}

// adopt follows the kind of a definition that the subject or the workload has created, before the workload may use it.
func (p *plane) adopt(ctx context.Context, crd *unstructured.Unstructured) {
	all, err := servedWith(ctx, p.config, []*unstructured.Unstructured{crd})
	if err != nil {
		if ctx.Err() == nil {
			p.follower.fail(err)
		}
		return
	}
	res := all[slices.IndexFunc(all, func(res apiserver.Resource) bool { return defines(crd, res) })]
	p.follow(ctx, res, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.resources = append(slices.Clip(p.resources), res)
	})
}

// define creates definitions, and returns what the API server serves with them.
func define(ctx context.Context, cfg *rest.Config, crds []*unstructured.Unstructured) ([]apiserver.Resource, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	if err := install(ctx, client, crds); err != nil {
		return nil, err
	}
	return servedWith(ctx, cfg, crds)
}

// install creates definitions and waits until they are served.
func install(ctx context.Context, client dynamic.Interface, crds []*unstructured.Unstructured) error {
	of := client.Resource(definitions)
	for _, crd := range crds {
		if _, err := of.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("cannot create the CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, crd := range crds {
		for {
			u, err := of.Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if status, _ := condition(u, "Established"); status == "True" {
				break
			}
			if status, message := condition(u, "NamesAccepted"); status == "False" {
				return fmt.Errorf("the API server does not accept the CustomResourceDefinition %s: %s", crd.GetName(), message)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// condition returns status and message of a condition.
func condition(u *unstructured.Unstructured, of string) (status, message string) {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["type"] == of {
			status, _ = m["status"].(string)
			message, _ = m["message"].(string)
		}
	}
	return status, message
}

// servedWith returns the resources of an API server when the definitions are among them. A definition is established
// before the API server lists its kind.
func servedWith(
	ctx context.Context, cfg *rest.Config, crds []*unstructured.Unstructured,
) ([]apiserver.Resource, error) {
	limit := time.NewTimer(listed)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := served(cfg)
		if err != nil {
			return nil, err
		}
		missing := slices.IndexFunc(crds, func(crd *unstructured.Unstructured) bool { return !lists(all, crd) })
		if missing < 0 {
			return all, nil
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return nil, fmt.Errorf("the API server does not serve the CustomResourceDefinition %s", crds[missing].GetName())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lists reports whether the resource of a definition is among the others.
func lists(all []apiserver.Resource, crd *unstructured.Unstructured) bool {
	return slices.ContainsFunc(all, func(res apiserver.Resource) bool { return defines(crd, res) })
}

// defines reports whether the resource is that of the definition.
func defines(crd *unstructured.Unstructured, res apiserver.Resource) bool {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	return res.Group == group && res.Resource == plural
}

// served returns the resources of an API server in their preferred versions.
func served(cfg *rest.Config) ([]apiserver.Resource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("cannot read what the API server serves: %w", err)
	}
	var out []apiserver.Resource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			out = append(out, apiserver.Resource{
				Group: gv.Group, Version: gv.Version, Resource: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
				Singular: r.SingularName, ShortNames: r.ShortNames,
			})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the API server serves nothing")
	}
	return out, nil
}

// followed reports whether the objects of a resource count. Addresses that the API server chooses are different in each
// run, and leases and events are no state.
func followed(res apiserver.Resource) bool {
	switch res.Resource {
	case "events", "leases", "ipaddresses", "nodes", "csinodes":
		return false
	}
	return true
}

// supply prepares control planes before they are needed: while one is in use, the next one starts.
type supply struct {
	first  chan error // of the start of the first one
	ready  chan prepared
	cancel context.CancelFunc
	done   chan struct{}
}

type prepared struct {
	plane *plane
	err   error
}

func newSupply(crds []*unstructured.Unstructured, progress io.Writer) *supply {
	ctx, cancel := context.WithCancel(context.Background())
	s := &supply{
		first: make(chan error, 1), ready: make(chan prepared), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			p, err := newPlane(ctx, crds, progress)
			select {
			case s.first <- err:
			default: // only the first one is read
			}
			select {
			case s.ready <- prepared{p, err}:
			case <-ctx.Done():
				if err == nil {
					p.close()
				}
			}
		}
	}()
	return s
}

// started waits until the first control plane has started. It returns the error of the start.
func (s *supply) started(ctx context.Context) error {
	select {
	case err := <-s.first:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns a control plane that the caller has to close.
func (s *supply) take(ctx context.Context) (*plane, error) {
	select {
	case p := <-s.ready:
		return p.plane, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *supply) close() {
	s.cancel()
	<-s.done
}
