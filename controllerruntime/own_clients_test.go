package controllerruntime_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// strangers counts the warnings about clients of other origins in the log of controller-runtime.
var strangers atomic.Int64

// transformed counts the warnings about transforms of Secrets.
var transformed atomic.Int64

func recordLog() {
	crlog.SetLogger(funcr.New(func(_, args string) {
		if strings.Contains(args, "a client of client.New reads this cache") {
			strangers.Add(1)
		}
		if strings.Contains(args, "the Transform of Secrets changes what readers see") {
			transformed.Add(1)
		}
	}, funcr.Options{}))
}

// wrapper is a cache around another one, as in some operators.
type wrapper struct{ cache.Cache }

// serve starts a server.
func serve(t *testing.T) *apiserver.Server {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{})
	peer.Must(t, err)
	t.Cleanup(server.Close)
	return server
}

// writesAreRead writes config maps with a client and reads them with it, while the watches of the server deliver
// nothing.
func writesAreRead(t *testing.T, server *apiserver.Server, w *peer.World, c client.Client) {
	t.Helper()
	w.Informer(&corev1.ConfigMap{})
	defer server.HoldEvents(apiserver.Match{Resource: "configmaps"}).Release()
	cm := w.ConfigMap("color", "v", "green")
	peer.Must(t, c.Create(w.Ctx, cm))
	var got corev1.ConfigMap
	peer.Must(t, c.Get(w.Ctx, client.ObjectKeyFromObject(cm), &got))
	cm.Data["v"] = "red"
	peer.Must(t, c.Update(w.Ctx, cm))
	peer.Must(t, c.Get(w.Ctx, client.ObjectKeyFromObject(cm), &got))
	if got.Data["v"] != "red" {
		t.Errorf("the client reads %q after it has written red", got.Data["v"])
	}
}

// TestSecondClient creates a client by client.New over the manager's cache, with the manager's HTTP client.
func TestSecondClient(t *testing.T) {
	hc := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	t.Cleanup(hc.CloseIdleConnections)
	server := serve(t)
	w := peer.Ours.Open(t, server.Config(), "default", cache.Options{HTTPClient: hc})
	w.Start()
	w.Informer(&corev1.ConfigMap{})
	before := strangers.Load()
	second, err := client.New(server.Config(), client.Options{
		HTTPClient: hc, Cache: &client.CacheOptions{Reader: w.Cache},
	})
	peer.Must(t, err)
	writesAreRead(t, server, w, second)
	defer server.HoldEvents(apiserver.Match{Resource: "configmaps"}).Release()
	if n := strangers.Load() - before; n != 1 {
		t.Errorf("%d warnings about a second client, want one", n)
	}
	peer.Must(t, second.Create(w.Ctx, w.ConfigMap("shape")))
	if c := w.Client; c.Get(w.Ctx, client.ObjectKey{Namespace: "default", Name: "shape"}, &corev1.ConfigMap{}) != nil {
		t.Error("the first client does not see what the second one has written")
	}
	w.Stop()
	peer.Must(t, second.Create(w.Ctx, w.ConfigMap("late"))) // the cache has stopped
	if w.Has("late") {
		t.Error("a stopped cache shows a write")
	}
}

// TestTheFirstClientIsNoStranger: clients of NewClient cause no warning.
func TestTheFirstClientIsNoStranger(t *testing.T) {
	server := serve(t)
	w := peer.Ours.Open(t, server.Config(), "default", cache.Options{})
	w.Start()
	before := strangers.Load()
	writesAreRead(t, server, w, w.Client)
	if n := strangers.Load() - before; n != 0 {
		t.Errorf("%d warnings", n)
	}
}

// TestWrappedCache creates a client by NewClient over a cache that wraps one of NewCache.
func TestWrappedCache(t *testing.T) {
	t.Parallel()
	server := serve(t)
	hc := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	t.Cleanup(hc.CloseIdleConnections)
	w := peer.Ours.Open(t, server.Config(), "default", cache.Options{HTTPClient: hc})
	w.Start()
	over := &client.CacheOptions{Reader: wrapper{w.Cache}}
	c, err := controllerruntime.NewClient(server.Config(), client.Options{HTTPClient: hc, Cache: over})
	peer.Must(t, err)
	writesAreRead(t, server, w, c)

	_, err = controllerruntime.NewClient(server.Config(), client.Options{Cache: over}) // another HTTP client
	if err == nil || !strings.Contains(err.Error(), "controllerruntime_test.wrapper") ||
		!strings.Contains(err.Error(), "Options.Stores to Stores(inner)") {
		t.Errorf("error %v", err)
	}
	c, err = controllerruntime.Options{Stores: controllerruntime.Stores(w.Cache)}.NewClient(
		server.Config(), client.Options{Cache: over},
	)
	peer.Must(t, err)
	peer.Must(t, c.Delete(w.Ctx, w.ConfigMap("color")))
	writesAreRead(t, server, w, c)
}

// TestCachesOfOneHTTPClient: two caches show the writes of each other's clients.
func TestCachesOfOneHTTPClient(t *testing.T) {
	t.Parallel()
	server := serve(t)
	hc := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	t.Cleanup(hc.CloseIdleConnections)
	one := peer.Ours.Open(t, server.Config(), "default", cache.Options{HTTPClient: hc})
	two := peer.Ours.Open(t, server.Config(), "default", cache.Options{HTTPClient: hc})
	one.Start()
	two.Start()
	one.Informer(&corev1.ConfigMap{})
	two.Informer(&corev1.ConfigMap{})
	c, err := controllerruntime.NewClient(server.Config(), client.Options{
		HTTPClient: hc, Cache: &client.CacheOptions{Reader: one.Cache},
	})
	peer.Must(t, err)
	writesAreRead(t, server, one, c)
	defer server.HoldEvents(apiserver.Match{Resource: "configmaps"}).Release()
	peer.Must(t, c.Create(one.Ctx, one.ConfigMap("shape")))
	if !two.Has("shape") {
		t.Error("the other cache does not show the write")
	}
}

// TestTheDefaultHTTPClientStays: http.DefaultClient is unchanged, since it belongs to the whole program.
func TestTheDefaultHTTPClientStays(t *testing.T) {
	t.Parallel()
	before := http.DefaultClient.Transport
	_, err := controllerruntime.NewCache(serve(t).Config(), cache.Options{HTTPClient: http.DefaultClient})
	peer.Must(t, err)
	if http.DefaultClient.Transport != before {
		t.Error("NewCache has changed http.DefaultClient")
	}
}

// TestWaitingForWritesIsNotNeeded enables an option of controller-runtime that waits for the watch. Even own writes
// that reach no handler do not block.
func TestWaitingForWritesIsNotNeeded(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for _, o := range []controllerruntime.Options{{}, {FilterOwnWrites: true}} {
		p := peer.With(o)
		made := p.NewClient
		p.NewClient = func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			opts.Cache.EnableReadYourWritesConsistency = new(true)
			return made(cfg, opts)
		}
		w := p.Open(t, server.Config(), "default", cache.Options{})
		w.Start()
		writesAreRead(t, server, w, w.Client)
		peer.Must(t, w.Client.DeleteAllOf(context.WithoutCancel(w.Ctx), &corev1.ConfigMap{}, client.InNamespace("default")))
	}
}
