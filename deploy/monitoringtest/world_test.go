package monitoringtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard/group"
)

// world is an API server and programs in one bubble of time, whose metrics are collected.
type world struct {
	monitored
	t       *testing.T
	server  *apiserver.Server
	ok, bad string       // addresses of receivers
	trouble *atomic.Bool // set while programs are in trouble
	long    atomic.Bool  // set after the trouble has lasted
	failed  bool         // there was trouble
	worse   bool
	hung    bool // an operation hangs
	flooded int  // rounds so far
	targets []target
	stops   []func()
	round   int
	act     []func() // actions between two scrapes
}

// receivers answer calls of webhooks, outside of the bubble. They close connections, since an idle one would stop the
// time of the bubble.
func receivers(t *testing.T) (ok, bad string) {
	t.Helper()
	answer := func(code int) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(code)
		}))
		s.Config.SetKeepAlivesEnabled(false)
		s.Start()
		t.Cleanup(s.Close)
		return s.URL
	}
	return answer(http.StatusOK), answer(http.StatusServiceUnavailable)
}

// play runs the programs without trouble until the age well, in trouble until the age trouble, and then in worse
// trouble. If trouble is zero, they stay without trouble.
func play(t *testing.T, well, trouble, worse time.Duration) *monitored {
	t.Helper()
	ok, bad := receivers(t)
	var collected *monitored
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		w := &world{t: t, server: server, ok: ok, bad: bad, trouble: &atomic.Bool{}}
		defer w.stop()
		for i := range 6 { // the last one is not changed
			w.put(fmt.Sprint("map-", i))
		}
		w.operator("operator-0")
		w.operator("operator-1")
		w.member("member-0")
		w.member("member-1")
		w.controller("controller-0")
		w.hooks("hooks-0")
		w.scrape(w.t, w.targets...)
		w.until(well)
		if trouble > 0 {
			w.fail()
			w.until(well + (trouble-well)*2/3)
			w.long.Store(true)
			w.until(trouble)
			w.failMore()
			w.until(worse)
			w.targets = slices.DeleteFunc(w.targets, func(t target) bool { return t.pod == "controller-0" })
			w.until(worse + 12*time.Minute)
		}
		collected = &w.monitored
	})
	return collected
}

// stop ends the trouble, and then all programs.
func (w *world) stop() {
	w.server.ClearFaults()
	w.trouble.Store(false)
	for _, stop := range slices.Backward(w.stops) {
		stop()
	}
	time.Sleep(2 * time.Minute) // until blocked calls have returned
}

// until runs rounds until the world has this age.
func (w *world) until(age time.Duration) {
	for ; time.Since(w.monitored.start) < age; w.round++ {
		for _, act := range w.act {
			act()
		}
		time.Sleep(interval)
		synctest.Wait()
		w.scrape(w.t, w.targets...)
	}
}

// fail makes reconcilers, observers, hooks, receivers, rights and a certificate fail.
func (w *world) fail() {
	w.trouble.Store(true)
	w.failed = true
	w.server.On(apiserver.Match{Verb: "patch", Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
	w.server.On(apiserver.Match{Resource: "events"}, apiserver.Answer(apiserver.Failure(500)))
	w.server.On(apiserver.Match{Resource: "tokenreviews"}, apiserver.Answer(apiserver.Failure(500)))
	for i := range 1100 {
		if _, err := w.server.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "a",
			Name:      fmt.Sprint(i),
		}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// failMore makes Leases and a watch fail, another watch lag, and operations hang.
func (w *world) failMore() {
	w.worse = true
	for _, resource := range []string{"leases", "secrets"} {
		w.server.On(apiserver.Match{Resource: resource}, apiserver.Answer(apiserver.Failure(500)))
	}
	w.server.DropConnections()
}

func (w *world) put(name string) {
	w.t.Helper()
	if _, err := w.server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: map[string]string{"round": fmt.Sprint(w.round)},
	}); err != nil {
		w.t.Error(err)
	}
}

// start runs a program until the end of the world.
func (w *world) start(job, pod string, rt *fairlead.Runtime) {
	w.targets = append(w.targets, target{job, pod, rt.Registry()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	w.stops = append(w.stops, func() {
		cancel()
		if err := <-ended; err != nil && !w.failed {
			w.t.Errorf("%s: %v", pod, err)
		}
	})
}

// operator runs a replica of a program that elects a leader, observes, reconciles, and has flows.
func (w *world) operator(pod string) {
	rt := fairlead.New(w.server.Config(), fairlead.WithLeaderElection("default", "operator"))
	maps := observe.Selector("maps")
	observe.Source[corev1.ConfigMap](rt, maps)
	observe.On(rt, maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
		if w.trouble.Load() {
			return errors.New("no")
		}
		return nil
	}, observe.Name("teller"))
	observe.Source[corev1.Secret](rt, observe.Selector("secrets"))
	observe.On(rt, observe.Selector("secrets"), func(context.Context, observe.Event[corev1.Secret]) error {
		w.stall()
		return nil
	}, observe.Name("keeper"))
	step := flow.New("greet", flow.Step("hello", flow.Do(func(context.Context, *int) error { return nil })))
	engine := flow.NewEngine(flow.EngineOptions{})
	rt.Flows(engine)
	api := rt.Client()
	reconcile.New(rt, "greeter", reconcile.Func[corev1.ConfigMap](func(
		ctx context.Context, m *corev1.ConfigMap,
	) (reconcile.Result, error) {
		if w.trouble.Load() {
			switch m.Name {
			case "map-0":
				w.stall()
			case "map-1":
				panic("boom")
			case "map-5":
				return reconcile.Done, errors.New("no")
			case "map-2":
				if w.long.Load() { // then no worker is left
					w.stall()
				}
			}
		}
		if _, err := step.Start(ctx, engine, new(int), flow.StartOptions{}); err != nil {
			return reconcile.Done, err
		}
		if err := client.Modify(ctx, api, m, func(m *corev1.ConfigMap) error {
			m.Annotations = map[string]string{"greeted": m.Data["round"]}
			return nil
		}); err != nil {
			return reconcile.Done, err
		}
		return reconcile.After(time.Minute), nil
	}), reconcile.Workers(2), reconcile.Deadline(time.Minute))
	w.start("prod/operator", pod, rt)
	if len(w.act) == 0 {
		w.act = append(w.act, func() { w.put(fmt.Sprint("map-", w.round%5)) })
	}
}

// stall blocks until the trouble is over, even if its context ends.
func (w *world) stall() {
	for w.trouble.Load() {
		time.Sleep(time.Minute)
	}
}

// member runs a replica of a program that shares the objects.
func (w *world) member(pod string) {
	rt := fairlead.New(w.server.Config(),
		fairlead.WithShards("default", "members", func(o *group.Options) { o.Member = pod }))
	maps := observe.Selector("maps")
	observe.Source[corev1.ConfigMap](rt, maps)
	observe.On(rt, maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
		w.stall()
		return nil
	}, observe.Name("listener"))
	w.start("prod/members", pod, rt)
}

// controller runs the parts of fairlead controller.
func (w *world) controller(pod string) {
	t := w.t
	types := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(types), clientgoscheme.AddToScheme(types)); err != nil {
		t.Fatal(err)
	}
	version := v1alpha1.GroupVersion
	for resource, kind := range map[string]string{"operations": v1alpha1.KindOperation, "webhooks": v1alpha1.KindWebhook} {
		w.server.Register(apiserver.Resource{
			Group: version.Group, Version: version.Version, Resource: resource, Kind: kind, Namespaced: true,
			Subresources: []string{"status"},
		})
	}
	for name, url := range map[string]string{"ok": w.ok, "bad": w.bad} {
		hook := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
		hook.SetGroupVersionKind(version.WithKind(v1alpha1.KindWebhook))
		hook.Spec.Request.URL = url
		hook.Default()
		if _, err := w.server.Put(hook); err != nil {
			t.Fatal(err)
		}
	}
	rt := fairlead.New(w.server.Config(), fairlead.WithScheme(types))
	acquire := func(kind schema.GroupVersionKind) *cache.Store {
		h, err := rt.Cache().Acquire(kind)
		if err != nil {
			t.Fatal(err)
		}
		return h.Store
	}
	events, err := executor.NewEvents(rt.Calls())
	if err != nil {
		t.Fatal(err)
	}
	known := acquire(version.WithKind(v1alpha1.KindOperation))
	e, err := executor.New(executor.Options{
		Calls: rt.Calls(), Registerer: rt.Registry(), Recorder: events, AllowTargets: []string{"127.0.0.1"},
		Budget:     executor.Budget{Writes: 2, TotalWrites: 1},
		Operations: known, Webhooks: acquire(version.WithKind(v1alpha1.KindWebhook)),
		Secrets: acquire(corev1.SchemeGroupVersion.WithKind("Secret")),
	})
	if err != nil {
		t.Fatal(err)
	}
	rt.Add("executor", e.Run)
	scheduler, err := operations.NewScheduler(operations.Options{
		Config: w.server.Config(), Calls: rt.Calls(),
		Namespace: "a",
	})
	if err != nil {
		t.Fatal(err)
	}
	reviews := httpapi.NewKubernetes(rt.Calls())
	api, err := httpapi.New(httpapi.Options{
		Scheduler: scheduler, Operations: known, Authorizer: reviews, Registerer: rt.Registry(), All: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.listeners(scheduler, known)
	certificate := w.certificate(rt)
	for _, c := range []prometheus.Collector{events, reviews, certificate, serve.New(api, serve.Options{})} {
		if err := rt.Registry().Register(c); err != nil {
			t.Fatal(err)
		}
	}
	w.stops = append(w.stops, scheduler.Close, events.Close) // after the end of the program
	w.start("prod/fairlead-controller", pod, rt)
	w.act = append(w.act, func() { w.schedule(scheduler) }, func() {
		r := httptest.NewRequest(http.MethodGet, "/operations", nil)
		r.Header.Set("Authorization", "Bearer token-"+fmt.Sprint(w.round)) // a token that was not reviewed before
		api.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// listeners runs an HTTP API with a place for one event stream. In trouble the stream of a hanging operation holds the
// place, and further streams are refused.
func (w *world) listeners(scheduler *operations.Scheduler, known *cache.Store) {
	registry := prometheus.NewRegistry()
	stop := make(chan struct{})
	api, err := httpapi.New(httpapi.Options{
		Scheduler: scheduler, Operations: known, Authorizer: httpapi.Anonymous{}, Registerer: registry, All: true,
		MaxStreams: 1,
		Stop:       stop,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.targets = append(w.targets, target{"prod/listened", "listened-0", registry})
	var listening sync.WaitGroup
	w.stops = append(w.stops, func() {
		close(stop)
		listening.Wait()
	})
	listen := func() int {
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/operations/app/held/events", nil))
		return answer.Code
	}
	begun := false
	w.act = append(w.act, func() {
		switch {
		case !w.trouble.Load() || w.worse:
			return
		case !begun:
			begun = true
			if _, err := scheduler.Schedule(w.t.Context(), operations.Request{
				Type: v1alpha1.OperationCreate, Resource: operations.Resource{Type: "app", ID: "held"},
				Webhooks: []string{"missing"},
				Timeout:  10 * time.Hour,
			}); err != nil {
				w.t.Fatal(err)
			}
			listening.Go(func() { listen() })
			synctest.Wait()
		}
		for range 40 {
			if code := listen(); code != http.StatusServiceUnavailable {
				w.t.Errorf("one more listener gets %d", code)
			}
		}
	})
}

// certificate returns the certificate of the HTTP API. In trouble it expires within a week, and its new files are
// unreadable.
func (w *world) certificate(rt *fairlead.Runtime) *serve.Certificate {
	dir := w.t.TempDir()
	cert, key := servetest.Certificate(w.t, "api", time.Now().Add(-time.Hour), time.Now().Add(7*24*time.Hour+time.Hour))
	servetest.Write(w.t, dir, cert, key)
	c, err := serve.LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	rt.AddAlways("certificate", c.Run)
	w.act = append(w.act, func() {
		if w.trouble.Load() {
			servetest.Write(w.t, dir, []byte("?"), []byte(strings.Repeat("?", w.round)))
		}
	})
	return c
}

// schedule schedules an operation. In trouble some operations call a broken receiver, and some have hardly any time.
func (w *world) schedule(s *operations.Scheduler) {
	hook, timeout := "ok", time.Duration(0)
	switch {
	case w.hung:
		return
	case w.worse:
		hook, timeout, w.hung = "missing", 70*time.Minute, true
	case w.trouble.Load():
		hook, timeout = "bad", time.Minute
		if w.flooded++; w.flooded < 40 { // later rounds let the queue drain
			w.flood(s)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	_, err := s.Schedule(ctx, operations.Request{
		Type: v1alpha1.OperationCreate, Resource: operations.Resource{Type: "app", ID: fmt.Sprint(w.round)},
		Webhooks: []string{hook}, Timeout: timeout,
	})
	if err != nil && !w.trouble.Load() {
		w.t.Errorf("cannot schedule: %v", err)
	}
}

// flood schedules more operations than the share of a namespace permits.
func (w *world) flood(s *operations.Scheduler) {
	for i := range 20 {
		if _, err := s.Schedule(w.t.Context(), operations.Request{
			Type: v1alpha1.OperationCreate, Resource: operations.Resource{Type: "app", ID: fmt.Sprint(w.round, "-", i)},
			Webhooks: []string{"bad"}, Timeout: time.Minute,
		}); err != nil {
			w.t.Error(err)
		}
	}
}
