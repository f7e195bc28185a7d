package call_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
)

// visit is a packet that records the steps of its fiber.
type visit struct {
	trail   []string
	version string
}

func (v *visit) note(s string) { v.trail = append(v.trail, s) }

func TestStep(t *testing.T) {
	t.Parallel()
	read := func(context.Context, *visit) (call.Request, error) { return get(), nil }
	update := func(_ context.Context, v *visit) (call.Request, error) {
		v.note("request " + v.version)
		return call.Request{
			Verb: call.VerbUpdate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web",
			Body: []byte(`{"metadata":{"resourceVersion":"` + v.version + `"}}`),
		}, nil
	}
	onSuccess := func(_ context.Context, f *flow.Fiber[visit], a *call.Answer) flow.Next {
		if a == nil {
			f.Packet.note("nothing")
		} else {
			f.Packet.note("success")
		}
		return f.Next()
	}
	conflict := status(409, "Conflict", "the object has been modified")
	unavailable := status(503, "ServiceUnavailable", "x")
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason string
		spec   call.StepSpec[visit]
		script []http.HandlerFunc
		trail  []string
		waits  []time.Duration
		err    func(error) bool
	}{
		{
			"a successful answer continues the flow",
			call.StepSpec[visit]{Request: read, OnSuccess: onSuccess},
			[]http.HandlerFunc{answer(200, web)},
			[]string{"success", "after"},
			nil, nil,
		},
		{
			"by default without a log line",
			call.StepSpec[visit]{Request: read},
			[]http.HandlerFunc{answer(200, web)},
			[]string{"after"},
			nil, nil,
		},
		{
			"failed tries are repeated after a back-off",
			call.StepSpec[visit]{Request: read, OnSuccess: onSuccess},
			[]http.HandlerFunc{unavailable, unavailable, answer(200, web)},
			[]string{"success", "after"},
			[]time.Duration{400 * ms, 800 * ms},
			nil,
		},
		{
			"until there are none left",
			call.StepSpec[visit]{Request: read, Policy: call.Policy{Retries: 1}},
			[]http.HandlerFunc{unavailable},
			nil,
			[]time.Duration{400 * ms},
			apierrors.IsServiceUnavailable,
		},
		{"a failure can be handled", call.StepSpec[visit]{
			Request: read, OnFailure: func(_ context.Context, f *flow.Fiber[visit], err error) flow.Next {
				f.Packet.note("failure")
				return f.Next()
			},
		}, []http.HandlerFunc{status(403, "Forbidden", "no")}, []string{"failure", "after"}, nil, nil},
		{"absence can be handled", call.StepSpec[visit]{
			Request: read, OnNotFound: func(_ context.Context, f *flow.Fiber[visit]) flow.Next {
				f.Packet.note("absent")
				return f.Next()
			},
		}, []http.HandlerFunc{status(404, "NotFound", "no")}, []string{"absent", "after"}, nil, nil},
		{
			"or is a failure",
			call.StepSpec[visit]{Request: read},
			[]http.HandlerFunc{status(404, "NotFound", "no")},
			nil, nil,
			apierrors.IsNotFound,
		},
		{
			"a conflict takes the detour, and then builds the request again",
			call.StepSpec[visit]{
				Request: update, OnSuccess: onSuccess,
				OnConflict: func(_ context.Context, f *flow.Fiber[visit], c call.Conflict) flow.Next {
					f.Packet.note("conflict")
					return f.Goto("read-again")
				},
			},
			[]http.HandlerFunc{conflict, status(429, "TooManyRequests", "x"), conflict, answer(200, web)},
			[]string{"request ", "conflict", "read", "request x", "conflict", "read", "request xx", "success", "after"},
			[]time.Duration{400 * ms, 400 * ms, 800 * ms},
			nil,
		},
		{
			"a bounded number of times",
			call.StepSpec[visit]{
				Request: update, Policy: call.Policy{Conflicts: 1},
				OnConflict: func(_ context.Context, f *flow.Fiber[visit], c call.Conflict) flow.Next { return f.Retry(0) },
			},
			[]http.HandlerFunc{conflict},
			[]string{"request ", "request "},
			[]time.Duration{400 * ms},
			apierrors.IsConflict,
		},
		{
			"an invalid request fails the step",
			call.StepSpec[visit]{Request: func(context.Context, *visit) (call.Request, error) { return call.Request{}, broken }},
			[]http.HandlerFunc{answer(200, web)},
			nil, nil, func(err error) bool { return errors.Is(err, broken) },
		},
		{
			"so does a step without one",
			call.StepSpec[visit]{},
			[]http.HandlerFunc{answer(200, web)},
			nil, nil,
			func(err error) bool { return err != nil },
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				e := flow.NewEngine(flow.EngineOptions{Workers: 1})
				fl := flow.New("visit", call.Step("call", b.client, tc.spec),
					flow.Step("after", flow.Do(func(_ context.Context, v *visit) error { v.note("after"); return nil })),
					flow.Detour("read-again", flow.Do(func(_ context.Context, v *visit) error {
						v.note("read")
						v.version += "x"
						return nil
					})))
				var v visit
				h, err := fl.Start(t.Context(), e, &v, flow.StartOptions{Key: "a/web"})
				if err != nil {
					t.Fatal(err)
				}
				err = h.Wait(t.Context())
				if (err == nil) != (tc.err == nil) || tc.err != nil && !tc.err(err) {
					t.Errorf("the fiber ended with %v", err)
				}
				if diff := cmp.Diff(tc.trail, v.trail); diff != "" {
					t.Errorf("trail (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.waits, b.waits()); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A fiber in back-off holds neither a worker nor a goroutine. The test counts all goroutines of the process, so no
// other test runs beside it.
func TestStepsInRetryAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fibers = 500
		b := newBench(t, call.Options{Budget: &call.Budget{Burst: 10 * fibers}},
			func(w http.ResponseWriter, r *http.Request) {
				withHeader(status(503, "ServiceUnavailable", "x"), "Retry-After", "3600")(w, r)
			})
		e := flow.NewEngine(flow.EngineOptions{Workers: 2})
		fl := flow.New("visit", call.Step("call", b.client, call.StepSpec[visit]{
			Policy:  call.Policy{Retries: 1},
			Request: func(context.Context, *visit) (call.Request, error) { return get(), nil },
		}))
		begun := runtime.NumGoroutine()
		var handles []flow.Handle
		for range fibers {
			h, err := fl.Start(t.Context(), e, new(visit), flow.StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		synctest.Wait()
		if n := len(b.seen()); n != fibers {
			t.Errorf("%d requests while all are parked, want %d", n, fibers)
		}
		if n := runtime.NumGoroutine() - begun; n > 50 {
			t.Errorf("%d goroutines for %d parked fibers", n, fibers)
		}
		for _, h := range handles[:fibers/2] {
			h.Cancel(errors.New("enough"))
		}
		for i, h := range handles {
			err := h.Wait(t.Context())
			if cancelled := errors.Is(err, flow.ErrCancelled); cancelled != (i < fibers/2) {
				t.Fatalf("fiber %d ended with %v", i, err)
			}
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No request of a preempted fiber is under way once its successor runs.
func TestStepOfAPreemptedFiberIsCancelledOnTheWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := newServer(t)
		defer stop()
		gate := apiserver.NewGate()
		s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.HoldRequest(gate))
		e := flow.NewEngine(flow.EngineOptions{})
		create := func(name string) *flow.Flow[visit] {
			return flow.New("create", call.Step("call", c,
				call.StepSpec[visit]{Request: func(context.Context, *visit) (call.Request, error) {
					return call.Request{
						Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
						Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
					}, nil
				}}))
		}
		first, err := create("first").Start(t.Context(), e, new(visit), flow.StartOptions{Key: "a/web"})
		if err != nil {
			t.Fatal(err)
		}
		if err := gate.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		second, err := create("second").Start(t.Context(), e, new(visit), flow.StartOptions{Key: "a/web", Mode: flow.Preempt})
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Wait(t.Context()); !errors.Is(err, flow.ErrPreempted) {
			t.Errorf("the first fiber ended with %v", err)
		}
		if err := second.Wait(t.Context()); err != nil {
			t.Errorf("the second fiber ended with %v", err)
		}
		synctest.Wait() // the server has noticed the disconnect
		gate.Open()
		synctest.Wait()
		objs, err := s.Objects(configMaps)
		if err != nil || len(objs) != 1 || objs[0].GetName() != "second" {
			t.Errorf("the server has %v, %v; want the second object alone", objs, err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A step that runs again, after a restart or by the flow, remembers that its write may have been executed.
func TestStepThatRunsAgainIsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := newServer(t)
		defer stop()
		s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.DropAfter())
		e := flow.NewEngine(flow.EngineOptions{})
		var recovered bool
		fl := flow.New("create", call.Step("call", c, call.StepSpec[visit]{
			Policy: call.Policy{Retries: -1},
			Request: func(context.Context, *visit) (call.Request, error) {
				return call.Request{
					Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
					Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
				}, nil
			},
			OnSuccess: func(_ context.Context, f *flow.Fiber[visit], a *call.Answer) flow.Next {
				recovered = a.Recovered
				return f.Next()
			},
		}, flow.Retry(flow.Backoff{Attempts: 2})))
		h, err := fl.Start(t.Context(), e, new(visit), flow.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil || !recovered {
			t.Errorf("the fiber ended with %v, recovered: %v", err, recovered)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A retry does not repeat a write that must not be executed twice, unless the write has definitely failed.
func TestStepDoesNotRepeatADoubtfulWrite(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		script   []http.HandlerFunc
		requests int
		ok       bool
	}{
		{"an unknown outcome", []http.HandlerFunc{reset, answer(201, web)}, 1, false},
		{"a refusal", []http.HandlerFunc{status(403, "Forbidden", "no"), answer(201, web)}, 2, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				e := flow.NewEngine(flow.EngineOptions{})
				fl := flow.New("create", call.Step("call", b.client, call.StepSpec[visit]{
					Request: func(context.Context, *visit) (call.Request, error) {
						return call.Request{
							Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
							Body: []byte(`{"metadata":{"generateName":"web-"}}`),
						}, nil
					},
				}, flow.Retry(flow.Backoff{Attempts: 3})))
				h, err := fl.Start(t.Context(), e, new(visit), flow.StartOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Wait(t.Context()); (err == nil) != tc.ok || !tc.ok && !errors.Is(err, call.ErrOutcomeUnknown) {
					t.Errorf("the fiber ended with %v", err)
				}
				if n := len(b.seen()); n != tc.requests {
					t.Errorf("%d requests, want %d", n, tc.requests)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If the deadline of a step ends its call, the call does not continue when the flow enters the step again.
func TestStepEnteredAgainMakesANewRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, withHeader(status(503, "ServiceUnavailable", "x"), "Retry-After", "60"),
			answer(200, web))
		e := flow.NewEngine(flow.EngineOptions{})
		fl := flow.New("update",
			call.Step("call", b.client, call.StepSpec[visit]{
				Request: func(_ context.Context, v *visit) (call.Request, error) {
					return call.Request{
						Verb: call.VerbUpdate, Resource: configMaps, Namespace: "a", Name: "web",
						Body: []byte(`{"metadata":{"resourceVersion":"` + v.version + `"}}`),
					}, nil
				},
			}, flow.Deadline(5*time.Second), flow.OnError("renew")),
			flow.Step("end", func(_ context.Context, f *flow.Fiber[visit]) flow.Next { return f.End() }),
			flow.Step("renew", func(_ context.Context, f *flow.Fiber[visit]) flow.Next {
				f.Packet.version += "x"
				return f.Goto("call")
			}))
		h, err := fl.Start(t.Context(), e, &visit{version: "7"}, flow.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		const path = "PUT /api/v1/namespaces/a/configmaps/web "
		if diff := cmp.Diff([]string{
			path + `{"metadata":{"resourceVersion":"7"}}`,
			path + `{"metadata":{"resourceVersion":"7x"}}`,
		}, b.seen()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A fiber that was parked between two tries continues after a restart: at the same step, after its back-off, and in
// doubt.
func TestStepContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c, stop := newServer(t)
		defer stop()
		s.On(apiserver.Match{Verb: "create", Times: 1}, apiserver.DropAfter())
		var positions flow.Memory
		var recovered bool
		requests := 0
		fl := flow.New("create", call.Step("call", c, call.StepSpec[visit]{
			Policy: call.Policy{Base: time.Minute, Cap: time.Minute},
			Request: func(context.Context, *visit) (call.Request, error) {
				requests++
				return call.Request{
					Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
					Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
				}, nil
			},
			OnSuccess: func(_ context.Context, f *flow.Fiber[visit], a *call.Answer) flow.Next {
				recovered = a.Recovered
				return f.Next()
			},
		}))
		options := flow.StartOptions{Key: "a/web", Positions: &positions}
		first := flow.NewEngine(flow.EngineOptions{})
		if _, err := fl.Start(t.Context(), first, new(visit), options); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		time.Sleep(10 * time.Second)
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := flow.NewEngine(flow.EngineOptions{})
		h, err := fl.Start(t.Context(), second, new(visit), options)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(t.Context()); err != nil || !recovered {
			t.Errorf("the fiber ended with %v, recovered: %v", err, recovered)
		}
		if d := time.Since(begun); d != time.Minute || requests != 2 {
			t.Errorf("after %v and %d requests made, want a minute and 2", d, requests)
		}
		if _, found, err := positions.Load(t.Context(), "a/web"); found || err != nil {
			t.Errorf("a position is left: %v, %v", found, err)
		}
		if err := second.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process dies after its create has arrived, before it has parked. The next process finds the name taken, and
// compares the object with its own.
func TestACreateOnTheWireDuringACrash(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		there  string
		ok     bool
	}{
		{"the existing object is the desired one", "v", true},
		{"another client has created it", "other", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, c, stop := newServer(t)
				defer stop()
				if _, err := s.Put(&corev1.ConfigMap{
					TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}, Data: map[string]string{"k": tc.there},
				}); err != nil {
					t.Fatal(err)
				}
				fl := flow.New("create", call.Step("call", c, call.StepSpec[visit]{
					Request: func(context.Context, *visit) (call.Request, error) {
						return call.Request{
							Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
							Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Data: map[string]string{"k": "v"}},
						}, nil
					},
				}, flow.Save()))
				var positions flow.Memory
				if err := positions.Save(t.Context(), "a/web",
					flow.Position{Flow: "create", Step: "call", Reason: "save", Token: "t"}); err != nil {
					t.Fatal(err)
				}
				e := flow.NewEngine(flow.EngineOptions{})
				h, err := fl.Start(t.Context(), e, new(visit), flow.StartOptions{Key: "a/web", Positions: &positions})
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Wait(t.Context()); (err == nil) != tc.ok || !tc.ok && !apierrors.IsAlreadyExists(err) {
					t.Errorf("the fiber ended with %v", err)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
