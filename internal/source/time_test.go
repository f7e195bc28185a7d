package source_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

// pipes is a listener with in-memory connections, for tests in a bubble of testing/synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	dialed atomic.Int32
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

// numbered is a connection with its number as the remote address.
type numbered struct {
	net.Conn
	number int32
}

func (c numbered) RemoteAddr() net.Addr { return &net.UnixAddr{Name: fmt.Sprint("pipe ", c.number)} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- numbered{server, p.dialed.Add(1)}:
		return client, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveInBubble runs a test on a fake clock, against a script.
func serveInBubble(t *testing.T, lists, watches []reply, test func(s *script, r *recorder)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, lists: lists, watches: watches, pipes: newPipes()}
		s.http = &http.Server{Handler: s}
		served := make(chan struct{})
		go func() { defer close(served); s.http.Serve(s.pipes) }()
		t.Cleanup(func() { // after the end of the source
			s.http.Close()
			<-served
		})
		r := newRecorder(t)
		r.patience = time.Hour
		test(s, r)
	})
}

// inBubble runs a source with default timings against the script for a duration, then calls check.
func inBubble(
	t *testing.T, lists, watches []reply, d time.Duration, check func(
		t *testing.T, s *script, r *recorder, src *source.Source,
	),
) {
	t.Helper()
	serveInBubble(t, lists, watches, func(s *script, r *recorder) {
		t := s.t
		src, err := source.New(source.Config{REST: s.config(), Resource: configMaps, NoWatchList: true}, r.sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- src.Run(ctx) }()
		time.Sleep(d) // on the fake clock
		synctest.Wait()
		check(t, s, r, src)
		for _, st := range r.statuses {
			if age := st.Staleness(st.Since); st.Phase == source.Watching && age > time.Second {
				t.Errorf("the scope is watching, but %v old: %+v", age, st)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func counted(all []string, prefix string) (n int) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func within(t *testing.T, what string, n, least, most int) {
	t.Helper()
	if n < least || n > most {
		t.Errorf("%s: %d, want %d to %d", what, n, least, most)
	}
}

func TestIdleWatchCausesNoStorm(t *testing.T) {
	inBubble(t, []reply{list(5, object("a", 1))}, []reply{watch()}, time.Hour,
		func(t *testing.T, s *script, r *recorder, src *source.Source) {
			within(t, "lists", counted(s.seen(), "LIST limit=500"), 1, 1)
			within(t, "probes", counted(s.seen(), "LIST limit=1"), 30, 40)
			within(t, "watches", counted(s.seen(), "WATCH"), 4, 5) // the lifetime of 15 minutes
			if st := r.status(); st.Phase != source.Watching {
				t.Errorf("status %+v", st)
			}
			if age := src.Status()[0].Staleness(time.Now()); age > 95*time.Second {
				t.Errorf("stale for %v although probes answer", age)
			}
		})
}

// TestIdleAmongBusyResources: other resources raise the server's version, and the server sends no bookmarks.
func TestIdleAmongBusyResources(t *testing.T) {
	version := 5
	moving := func(w http.ResponseWriter, r *http.Request) {
		version += 100
		list(version, object("a", 1))(w, r)
	}
	inBubble(t, []reply{moving}, []reply{watch()}, 24*time.Hour,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			full := counted(s.seen(), "LIST limit=500") + counted(s.seen(), "LIST resourceVersion")
			within(t, "lists in a day", full, 10, 90)
		})
}

func TestExpiredForEver(t *testing.T) {
	inBubble(t, []reply{list(5, object("a", 1))}, []reply{status(410, "Expired", "x")}, time.Hour,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			within(t, "lists in an hour", counted(s.seen(), "LIST"), 100, 400)
			if st := r.status(); st.Phase != source.Degraded || st.Reason != source.ReasonExpired {
				t.Errorf("status %+v", st)
			}
		})
}

func TestWatchThatAlwaysEndsAtOnce(t *testing.T) {
	inBubble(t, []reply{list(5, object("a", 1))}, []reply{watchThenEnd()}, time.Hour,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			within(t, "requests in an hour", len(s.seen()), 100, 600)
		})
}

func TestFlapping(t *testing.T) {
	n := 5
	flap := func(w http.ResponseWriter, r *http.Request) {
		n++
		watchThenBreak(event("MODIFIED", object("a", n)))(w, r)
	}
	inBubble(t, []reply{list(5, object("a", 1))}, []reply{flap}, time.Minute,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			within(t, "watches in a minute", counted(s.seen(), "WATCH"), 60, 1000)
			within(t, "lists", counted(s.seen(), "LIST"), 1, 1)
		})
}

// TestOutage: a long outage causes few requests, and its end is noticed within the cap of the back-off.
func TestOutage(t *testing.T) {
	var up atomic.Bool
	bad := func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			panic(http.ErrAbortHandler)
		}
		list(5, object("a", 1))(w, r)
	}
	inBubble(t, []reply{bad}, []reply{watch()}, time.Hour, func(t *testing.T, s *script, r *recorder, src *source.Source) {
		within(t, "requests", len(s.seen()), 100, 400)
		if st := r.status(); st.Phase != source.Degraded || st.Reason != source.ReasonDisconnected || src.Status()[0].Synced {
			t.Errorf("status %+v", st)
		}
		up.Store(true)
		time.Sleep(source.DefaultBackoffCap + 2*time.Second)
		synctest.Wait()
		if st := r.status(); st.Phase != source.Watching || !src.Status()[0].Synced {
			t.Errorf("not recovered: %+v", st)
		}
	})
}

// TestWatchOpensLate: a late answer still confirms a watch as fresh.
func TestWatchOpensLate(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(10 * time.Second)
		watch()(w, r)
	}
	inBubble(t, []reply{list(5)}, []reply{late}, time.Minute,
		func(t *testing.T, _ *script, r *recorder, _ *source.Source) {
			if st := r.status(); st.Phase != source.Watching {
				t.Errorf("status %+v", st)
			}
		})
}

func TestBlackHole(t *testing.T) {
	hole := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	t.Run("list", func(t *testing.T) {
		inBubble(t, []reply{hole, list(5)}, []reply{watch()}, 35*time.Second,
			func(t *testing.T, s *script, r *recorder, _ *source.Source) {
				if counted(r.lines(), "STATUS Degraded/Stalled") != 1 || r.status().Phase != source.Watching {
					t.Errorf("log %q", r.lines())
				}
			})
	})
	t.Run("watch", func(t *testing.T) {
		inBubble(t, []reply{list(5)}, []reply{hole, watch()}, 95*time.Second,
			func(t *testing.T, s *script, r *recorder, _ *source.Source) {
				if counted(r.lines(), "STATUS Degraded/Stalled") != 1 || r.status().Phase != source.Watching {
					t.Errorf("log %q", r.lines())
				}
			})
	})
}

// TestSlowListIsNotCutOff: a list has no total deadline as long as bytes arrive.
func TestSlowListIsNotCutOff(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		for text := listBody(5, "", objects(4, 1)...); len(text) > 0; {
			n := min(20, len(text))
			fmt.Fprint(w, text[:n])
			w.(http.Flusher).Flush()
			text = text[n:]
			time.Sleep(25 * time.Second)
		}
	}
	inBubble(t, []reply{slow, list(5, objects(4, 1)...)}, []reply{watch()}, 30*time.Minute,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			if len(r.snapshot()) != 4 || len(s.seen()) < 2 || s.seen()[1] != "WATCH resourceVersion=5" {
				t.Errorf("objects %v, requests %q", r.snapshot(), s.seen())
			}
		})
}

// TestInitialEventsWithoutEnd: a server without initial events costs seconds, not the whole silence budget.
func TestInitialEventsWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		server.On(apiserver.Match{Verb: "watch"}, apiserver.IgnoreWatchList())
		cm := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		}
		if _, err := server.Put(cm); err != nil {
			t.Fatal(err)
		}
		r := newRecorder(t)
		src, err := source.New(source.Config{REST: server.Config(), Resource: configMaps}, r.sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx) }()
		time.Sleep(12 * time.Second)
		synctest.Wait()
		same(t, server, r)
		if r.status().Phase != source.Watching {
			t.Errorf("log %q", r.lines())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestTimeoutSeconds(t *testing.T) {
	inBubble(t, []reply{list(5)}, []reply{watch()}, time.Second,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			d, err := time.ParseDuration(s.requests[1].Get("timeoutSeconds") + "s")
			if err != nil || d < 5*time.Minute || d > 10*time.Minute || s.requests[1].Get("allowWatchBookmarks") != "true" {
				t.Errorf("watch request %v", s.requests[1])
			}
		})
}
