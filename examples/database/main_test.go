package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/examples/database/server"
	"github.com/fairlead-io/fairlead/examples/internal/mortal"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an API server in this process and a server of databases.
type world struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string
	users     *client.Client // without a cache: it sees what the server has
	server    *server.Server
	url       string
	changed   chan struct{} // a token while an object has changed since it was looked last
	flights   *flights      // of the last operator
}

// flights counts the requests of an operator to the server of databases that are under way.
type flights struct {
	next   http.RoundTripper
	mu     sync.Mutex
	n      int
	landed *sync.Cond // n is 0
}

func newFlights(next http.RoundTripper) *flights {
	f := &flights{next: next}
	f.landed = sync.NewCond(&f.mu)
	return f
}

func (f *flights) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.n--; f.n == 0 {
			f.landed.Broadcast()
		}
	}()
	return f.next.RoundTrip(r)
}

// land waits until no request is under way. A dead operator sends no more.
func (f *flights) land() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.n > 0 {
		f.landed.Wait()
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	api, err := apiserver.New(apiserver.Options{Resources: append(apiserver.DefaultResources(), apiserver.Resource{
		Group: kind.Group, Version: kind.Version, Resource: "databases", Kind: kind.Kind, Namespaced: true,
		Subresources: []string{"status"},
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	w := &world{
		t: t, cfg: api.Config(), namespace: "team-a", server: server.New(), changed: make(chan struct{}, 1),
	}
	served := httptest.NewServer(w.server.Handler())
	t.Cleanup(served.Close)
	w.url = served.URL
	s, err := newScheme()
	w.must(err)
	w.users, err = client.New(client.Options{Config: w.cfg, Scheme: s})
	w.must(err)
	t.Cleanup(w.users.Close)
	// Somebody who sees each change.
	rt, sees := fairlead.New(w.cfg, fairlead.WithScheme(s)), observe.Selector("databases")
	observe.Source[Database](rt, sees, cache.Namespaces(w.namespace))
	observe.On(rt, sees, func(context.Context, observe.Event[Database]) error {
		select {
		case w.changed <- struct{}{}:
		default:
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := rt.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// operate runs an operator whose requests go through life, until it is stopped or the test ends.
func (w *world) operate(life *mortal.Life, wrap ...func(http.RoundTripper) http.RoundTripper) (stop func()) {
	w.t.Helper()
	cfg := rest.CopyConfig(w.cfg)
	cfg.Wrap(life.Wrap)
	for _, fn := range wrap {
		cfg.Wrap(fn)
	}
	transport := &http.Transport{}
	w.flights = newFlights(life.Wrap(transport))
	rt, err := newOperator(cfg, &provider{w.url, &http.Client{Transport: w.flights}}, 10*time.Millisecond,
		[]string{w.namespace}, fairlead.WithDrain(time.Millisecond))
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !life.Dead() {
			w.t.Errorf("operator: %v", err)
		}
		transport.CloseIdleConnections()
	})
	w.t.Cleanup(stop)
	return stop
}

func immortal() *mortal.Life { return mortal.New(0, false, nil) }

// until returns when ok is true, which is asked when an object or the server has changed; false if died comes before.
func (w *world) until(what string, died <-chan struct{}, ok func() bool) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-w.changed:
		case <-w.server.Changed():
		case <-died:
			return false
		case <-ctx.Done():
			w.t.Fatalf("in vain: %s", what)
		}
	}
	return true
}

func (w *world) create(name string) *Database {
	w.t.Helper()
	db := &Database{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: DatabaseSpec{SizeGi: 1}}
	w.must(w.users.Create(w.t.Context(), db))
	return db
}

// get returns the object and its Secret as they are; nil where there is none.
func (w *world) get(name string) (*Database, *corev1.Secret) {
	w.t.Helper()
	key := client.Key{Namespace: w.namespace, Name: name}
	db, err := client.Get[Database](w.t.Context(), w.users, key)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	w.must(err)
	secret, err := client.Get[corev1.Secret](w.t.Context(), w.users, key)
	if apierrors.IsNotFound(err) {
		return db, nil
	}
	w.must(err)
	return db, secret
}

func (w *world) ready(name, status, reason string) func() bool {
	return func() bool {
		db, _ := w.get(name)
		for _, c := range db.Status.Conditions {
			if c.Type == "Ready" {
				return string(c.Status) == status && c.Reason == reason
			}
		}
		return false
	}
}

// works says whether a user can log in with what is in the Secret, to a database of the right size.
func (w *world) works(name string) bool {
	db, secret := w.get(name)
	if secret == nil {
		return false
	}
	for _, is := range w.server.List() {
		if is.ID == string(secret.Data["database"]) {
			return is.Password == server.Digest(string(secret.Data["password"])) && is.SizeGi == db.Spec.SizeGi &&
				is.ID == db.Status.Database
		}
	}
	return false
}

// Operators die at random requests, to the API server and to the server of databases, which knows no idempotency keys:
// in the end there is one database for each object, and none when they are gone.
func TestOneEach(t *testing.T) {
	t.Parallel()
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		w, rnd := newWorld(t), rand.New(rand.NewPCG(seed, 0))
		const n = 5
		name := func(i int) string { return fmt.Sprintf("db-%d", i) }
		for i := range n {
			w.create(name(i))
		}
		killed := w.survive(rnd, "each has its database", func() bool {
			for i := range n {
				if !w.works(name(i)) {
					return false
				}
			}
			return true
		})
		if got := w.server.List(); len(got) != n || w.server.Made() != n {
			t.Errorf("for %d objects %d databases were made, of which there are %v", n, w.server.Made(), got)
		}
		for i := range n {
			db, _ := w.get(name(i))
			w.must(w.users.Delete(t.Context(), db))
		}
		killed += w.survive(rnd, "all are gone", func() bool {
			for i := range n {
				if db, _ := w.get(name(i)); db != nil {
					return false
				}
			}
			return true
		})
		if got := w.server.List(); len(got) != 0 || killed == 0 {
			t.Errorf("after %d deaths, and without objects, there is %v", killed, got)
		}
	})
}

// survive runs one operator after the other until ok is true; all but the last are killed, unless they are done before.
func (w *world) survive(rnd *rand.Rand, what string, ok func() bool) (killed int) {
	w.t.Helper()
	for range 8 {
		died := make(chan struct{})
		stop := w.operate(mortal.New(1+rnd.Int64N(12), rnd.IntN(2) == 0, func(*http.Request) { close(died) }))
		if w.until(what, died, ok) {
			stop()
			return killed
		}
		w.flights.land() // the server has no idempotency keys: a late request to create would make another database
		go stop()        // a dead one tries for a while to record what it has made; the end of the test waits for it
		killed++
	}
	stop := w.operate(immortal())
	w.until(what, nil, ok)
	stop()
	return killed
}

// What somebody changes at the server is put right at the next look, and a look that finds all right asks the API
// server for nothing.
func TestDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.create("orders")
	var requests atomic.Int64
	w.operate(immortal(), func(next http.RoundTripper) http.RoundTripper {
		return counted{next, &requests}
	})
	w.until("it works", nil, func() bool { return w.works("orders") && w.ready("orders", "True", "AsAskedFor")() })
	before := requests.Load()
	is := w.server.List()[0]
	w.server.Put(server.State{ID: is.ID, Note: is.Note, SizeGi: 100, Password: is.Password})
	w.until("the size is as it was", nil, func() bool { return w.works("orders") })
	w.server.Put(server.State{ID: is.ID, Note: is.Note, SizeGi: 1, Password: server.Digest("guessed")})
	w.until("the password is as it was", nil, func() bool { return w.works("orders") })
	if n := requests.Load() - before; n != 0 {
		t.Errorf("the API server was asked %d times about what it has no part in", n)
	}
	w.must(client.Modify(t.Context(), w.users, db, func(db *Database) error { db.Spec.SizeGi = 2; return nil }))
	w.until("the size is what is wanted now", nil, func() bool { return w.works("orders") })
}

// A user whose Secret is deleted is given another password.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("orders")
	w.operate(immortal())
	w.until("it works", nil, func() bool { return w.works("orders") })
	_, old := w.get("orders")
	w.must(w.users.Delete(t.Context(), old))
	w.until("it works with another password", nil, func() bool { return w.works("orders") })
	if _, secret := w.get("orders"); string(secret.Data["password"]) == string(old.Data["password"]) {
		t.Error("the password is the old one")
	}
}

// A database that was lost is told, and not replaced by an empty one.
func TestLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.create("orders")
	w.operate(immortal())
	w.until("it works", nil, func() bool { return w.works("orders") })
	is := w.server.List()[0]
	w.server.Remove(is.ID)
	w.until("it is told", nil, w.ready("orders", "False", "Lost"))
	if got := w.server.List(); len(got) != 0 {
		t.Errorf("there is another one: %v", got)
	}
	w.server.Put(is) // it was restored
	w.until("all is well", nil, w.ready("orders", "True", "AsAskedFor"))
	w.server.Remove(is.ID)
	w.must(w.users.Delete(t.Context(), db))
	w.until("what is lost can be deleted", nil, func() bool { db, _ := w.get("orders"); return db == nil })
}

// A Secret of somebody else stays as it is.
func TestTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.users.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "orders"},
		StringData: map[string]string{"password": "mine"},
	}))
	w.create("orders")
	w.operate(immortal())
	w.until("it is told", nil, w.ready("orders", "False", "Taken"))
	_, secret := w.get("orders")
	if string(secret.Data["password"]) != "mine" || secret.OwnerReferences != nil {
		t.Errorf("got %v", secret)
	}
	w.must(w.users.Delete(t.Context(), secret))
	w.until("the next look finds its place free", nil, w.ready("orders", "True", "AsAskedFor"))
}

// What the operator relies on: the server finds what was made with a note, and makes two if it is asked twice.
func TestServer(t *testing.T) {
	t.Parallel()
	served := httptest.NewServer(server.New().Handler())
	defer served.Close()
	p := &provider{served.URL, served.Client()}
	var ids []string
	for range 2 {
		id, err := p.create(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if ids[0] == ids[1] {
		t.Errorf("got %v", ids)
	}
	if _, found, err := p.find(t.Context(), "a"); !found || err != nil {
		t.Errorf("got %t, %v", found, err)
	}
	if _, found, err := p.find(t.Context(), "b"); found || err != nil {
		t.Errorf("got %t, %v", found, err)
	}
	if _, err := p.settle(t.Context(), "db9", 1, ""); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
	if err := p.release(t.Context(), "b", ""); err != nil {
		t.Errorf("got %v", err)
	}
}

// counted is a transport that counts requests, but for watches.
type counted struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (t counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" {
		t.n.Add(1)
	}
	return t.next.RoundTrip(r)
}

func (t counted) WrappedRoundTripper() http.RoundTripper { return t.next }
