package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/source"
)

// Selectors of what the operator observes.
var (
	domains = observe.Selector("domains")
	pods    = observe.Selector("pods")
)

// operatorOptions tune an operator; the zero value works.
type operatorOptions struct {
	watch  []source.Option // restricts the domains and pods that it sees; all by default
	listen string          // address of /debug/flows, /metrics and so on; none by default
	log    *slog.Logger
	engine flow.EngineOptions
	onEnd  func(domain *Domain, r flow.Result)
}

// operator keeps the pods of every domain as the domain asks for: a fiber for each domain that has something to do.
type operator struct {
	opt    operatorOptions
	rt     *fairlead.Runtime
	engine *flow.Engine

	mu   sync.Mutex
	live map[client.Key]attempt // by domain
}

// attempt is a fiber of a domain, alive or failed, and what it works on.
type attempt struct {
	generation int64
	uid        string
	handle     flow.Handle
}

// newOperator declares an operator; Run runs it.
func newOperator(cfg *rest.Config, opt operatorOptions) (*operator, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if opt.log == nil {
		opt.log = slog.New(slog.DiscardHandler)
	}
	opt.engine.Logger = opt.log
	o := &operator{
		opt: opt, live: map[client.Key]attempt{}, engine: flow.NewEngine(opt.engine),
		rt: fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithLogger(opt.log), fairlead.WithFieldOwner("domains")),
	}
	observe.Source[Domain](o.rt, domains, opt.watch...)
	observe.Source[corev1.Pod](o.rt, pods, opt.watch...)
	observe.On(o.rt, domains, o.onDomain, observe.Name("domains"))
	observe.On(o.rt, pods, o.onPod, observe.Name("pods"), observe.Only(observe.OnDeleted))
	o.rt.Add("flows", o.runFlows)
	if opt.listen != "" {
		o.rt.Add("http", o.serve)
	}
	return o, nil
}

// Run works until ctx ends, and returns when every fiber has stopped. Those that were under way go on at the next Run of
// another operator.
func (o *operator) Run(ctx context.Context) error { return o.rt.Run(ctx) }

// runFlows ends the engine before the client that its fibers write with.
func (o *operator) runFlows(ctx context.Context) error {
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return o.engine.Close(bounded)
}

func (o *operator) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", o.opt.listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w (choose another address with --listen)", err)
	}
	return fairlead.Serve(ctx, listener, o.handler())
}

func (o *operator) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", o.rt.Handler())
	mux.Handle("GET /debug/flows", o.engine.DebugHandler())
	return mux
}

// onDomain looks at a domain that has changed.
func (o *operator) onDomain(ctx context.Context, e observe.Event[Domain]) error {
	switch e.Type {
	case observe.Added, observe.Modified:
		return o.look(ctx, e.Key, false)
	case observe.Deleted: // its pods go by their owner reference
		o.mu.Lock()
		a := o.live[e.Key]
		delete(o.live, e.Key)
		o.mu.Unlock()
		a.handle.Cancel(errors.New("the domain was deleted"))
	}
	return nil
}

// onPod heals: a server that was deleted by somebody else is started again.
func (o *operator) onPod(ctx context.Context, e observe.Event[corev1.Pod]) error {
	key := client.Key{Namespace: e.Key.Namespace, Name: e.Object().Labels[domainLabel]}
	if key.Name == "" {
		return nil
	}
	d, err := client.Get[Domain](ctx, o.rt.Client(), key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || e.Object().Labels[revisionLabel] != revision(d.Spec) { // else a fiber has replaced it
		return err
	}
	return o.look(ctx, key, true)
}

// look starts a fiber for a domain if there is something to do that none does yet. What it reads is newer than any event: its
// fibers' own writes are in it.
func (o *operator) look(ctx context.Context, key client.Key, lost bool) error {
	d, err := client.Get[Domain](ctx, o.rt.Client(), key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.DeletionTimestamp != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	a, ok := o.live[key]
	same := ok && a.generation == d.Generation && a.uid == string(d.UID)
	if same && !lost {
		return nil // at work, or has failed: then a change of the spec is what it waits for
	}
	p := &packet{c: o.rt.Client(), domain: d, status: client.NewStatusPosition(o.rt.Client(), d, func(d *Domain) **flow.Position { return &d.Status.Flow })}
	if atRest := d.Status.ObservedGeneration == d.Generation && d.Status.Flow == nil; atRest || same {
		if !lost {
			return nil
		}
		if complete, err := p.complete(ctx); err != nil || complete {
			return err
		}
	}
	mode := flow.Preempt
	if same {
		mode = flow.Coalesce // the fiber may have looked at that server already, or be about to end
	}
	return o.start(ctx, key, p, mode)
}

// start starts the fiber of a domain. One from before a restart goes on where it was saved.
func (o *operator) start(ctx context.Context, key client.Key, p *packet, mode flow.Mode) error {
	d, fl := p.domain, bringUp
	if d.Status.ObservedGeneration > 0 && d.Status.ObservedGeneration != d.Generation {
		fl = roll // it has run before
	}
	h, err := fl.Start(ctx, o.engine, p, flow.StartOptions{
		Key: key.String(), Mode: mode, Positions: p.status, Generation: d.Generation, OnEnd: func(r flow.Result) { o.ended(key, d, r) },
	})
	if errors.Is(err, flow.ErrClosed) {
		return nil // the operator stops
	}
	if err == nil {
		o.live[key] = attempt{generation: d.Generation, uid: string(d.UID), handle: h}
	}
	return err
}

// ended forgets a fiber, unless it has failed: only a change of the spec starts another one then.
func (o *operator) ended(key client.Key, d *Domain, r flow.Result) {
	o.mu.Lock()
	if o.live[key].handle == r.Handle && r.Status == flow.Completed {
		delete(o.live, key)
	}
	o.mu.Unlock()
	if r.Status == flow.Failed {
		o.opt.log.Error("domain has failed", "domain", key, "error", r.Err)
	}
	if o.opt.onEnd != nil {
		o.opt.onEnd(d, r)
	}
}
