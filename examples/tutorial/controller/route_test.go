package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"

	"example.com/sites/api"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
	"example.com/sites/edge"
	"example.com/sites/edge/edgetest"
)

// inProcess is a transport that calls a handler. It needs no network, so fake time can pass.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// world is an API server and an edge in this process, on fake time.
type world struct {
	server *apiserver.Server
	edge   *edgetest.Server
	user   *client.Client
	route  *webv1alpha1.Route
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{
		Pipe: true, // all connections are in memory
		Resources: append(apiserver.DefaultResources(), apiserver.Resource{
			Group: "web.example.com", Version: "v1alpha1", Resource: "routes", Kind: "Route",
			Namespaced: true, Subresources: []string{"status"},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.New(client.Options{Config: server.Config(), Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	route := &webv1alpha1.Route{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec:       webv1alpha1.RouteSpec{Host: "shop.example.com"},
	}
	if err := user.Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	return &world{server, edgetest.New(30*time.Second, slog.New(slog.DiscardHandler)), user, route}
}

// run runs the controller of Routes in the background, until the caller calls stop.
func (w *world) run(t *testing.T, transport http.RoundTripper) (rt *fairlead.Runtime, stop func()) {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	rt = fairlead.New(w.server.Config(), fairlead.WithScheme(scheme))
	declareRouteAt(rt, &edge.Client{URL: "http://edge", HTTP: &http.Client{Transport: transport}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	return rt, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (w *world) expect(t *testing.T, reserved, addresses, routes int) {
	t.Helper()
	if r, a, n := w.edge.State(); r != reserved || a != addresses || n != routes {
		t.Errorf("the edge reserved %d addresses and has %d, and %d routes; want %d, %d, %d",
			r, a, n, reserved, addresses, routes)
	}
}

// A Route becomes active, and a deletion leaves nothing at the edge.
func TestRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, stop := w.run(t, inProcess{w.edge})
		defer stop()
		time.Sleep(time.Minute) // of the fake clock
		if err := w.user.Get(t.Context(), client.KeyOf(w.route), w.route); err != nil || w.route.Status.URL == "" {
			t.Errorf("the Route is not active: %+v, %v", w.route.Status, err)
		}
		w.expect(t, 1, 1, 1)
		if err := w.user.Delete(t.Context(), w.route); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := w.user.Get(t.Context(), client.KeyOf(w.route), w.route); !apierrors.IsNotFound(err) {
			t.Errorf("the Route is still there: %v", err)
		}
		w.expect(t, 1, 0, 0)
	})
}

// killer stops the program after the edge has reserved an address and before the program gets the answer.
type killer struct {
	inProcess
	server *apiserver.Server
	killed bool
}

func (k *killer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := k.inProcess.RoundTrip(r)
	if r.Method == http.MethodPost && !k.killed {
		k.killed = true
		k.server.Down() // this program writes nothing any more
		return nil, errors.New("killed")
	}
	return answer, err
}

// The next program gets the same address, because it sends the same key.
func TestRouteKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, stop := w.run(t, &killer{inProcess: inProcess{w.edge}, server: w.server})
		time.Sleep(10 * time.Second)
		stop()
		w.expect(t, 1, 1, 0)
		if err := w.server.Up(); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run(t, inProcess{w.edge})
		defer stop()
		time.Sleep(time.Minute)
		w.expect(t, 1, 1, 1)
	})
}

// The program reads what it has written, although its watch reports nothing.
func TestRouteOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rt, stop := w.run(t, inProcess{w.edge})
		defer stop()
		synctest.Wait() // the Route has its address, and waits until it is active
		held := w.server.HoldEvents(apiserver.Match{Verb: "watch", Resource: "routes"})
		defer held.Release()
		time.Sleep(time.Minute)
		route, err := client.Get[webv1alpha1.Route](t.Context(), rt.Client(), client.KeyOf(w.route)) // from the cache
		if err != nil || route.Status.URL == "" {
			t.Errorf("the cache does not have the URL: %+v, %v", route, err)
		}
		gets := apiserver.Match{Verb: "get", Resource: "routes"}
		before := w.server.Log().Count(gets)
		if _, err := client.Get[webv1alpha1.Route](t.Context(), rt.Client(), client.KeyOf(w.route)); err != nil {
			t.Error(err)
		}
		if after := w.server.Log().Count(gets); after != before {
			t.Errorf("a read asked the API server")
		}
	})
}
