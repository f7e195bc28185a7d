package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// front is a proxy to the API server that counts the status writes of operations. While it is held, its clients learn
// neither the leader nor any change. Requests for leases get no answer, and watches deliver nothing.
type front struct {
	next   http.RoundTripper
	asked  chan struct{} // receives a value for each held request of a lease
	mu     sync.Mutex
	writes int
	held   chan struct{} // closed at the release; nil: not held
}

func (f *front) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	}
}

// pass waits while the proxy is held.
func (f *front) pass(ctx context.Context, before func()) error {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held == nil {
		return nil
	}
	before()
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RoundTrip implements http.RoundTripper.
func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/leases/") {
		if err := f.pass(r.Context(), func() { f.asked <- struct{}{} }); err != nil {
			return nil, err
		}
	}
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/operations/") &&
		strings.HasSuffix(r.URL.Path, "/status") {
		f.mu.Lock()
		f.writes++
		f.mu.Unlock()
	}
	answer, err := f.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		answer.Body = &frontBody{answer.Body, f, r.Context()}
	}
	return answer, err
}

type frontBody struct {
	io.ReadCloser
	front *front
	ctx   context.Context // of the request to which this is the answer
}

func (b *frontBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if held := b.front.pass(b.ctx, func() {}); held != nil {
		return 0, held
	}
	return n, err
}

// newFront returns a proxy, and a kubeconfig that uses it.
func newFront(t *testing.T, config *rest.Config) (*front, string) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{next: transport, asked: make(chan struct{}, 1000)}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: f, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	t.Cleanup(server.Close)
	return f, program.Kubeconfig(t, &rest.Config{Host: server.URL}, "none")
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// TestFencedLeader stops the leader with SIGSTOP while it polls for a hundred operations, each ten times a second. The
// other replica takes over and finishes all operations. In one case it then ends and releases the Lease. When the first
// one is woken, a hundred polls are overdue, and for some seconds it gets no changes. It sends only the polls that were
// already about to be sent, and writes nothing.
func TestFencedLeader(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"AnotherLeads": false, "AnotherHasLed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, env.Config(t))
			const n, atOnce = 100, 4
			var mu sync.Mutex
			requests, done := 0, false
			s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				mu.Lock()
				requests++
				over := done
				mu.Unlock()
				switch {
				case r.URL.Path == "/work":
					w.Header().Set("Location", "/jobs/1")
					w.WriteHeader(http.StatusAccepted)
				case over:
					_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
				default:
					_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
				}
			})
			s.webhook("work", "/work", func(w *v1alpha1.WebhookSpec) {
				w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 100 * time.Millisecond}
			})
			way, kubeconfig := newFront(t, s.config)
			first := s.controller(kubeconfig, "--insecure-no-auth", "--leader-elect", "--max-calls", fmt.Sprint(atOnce))
			<-first.address
			ids := s.scheduleMany(n, operations.Request{Webhooks: []string{"work"}})
			s.eventually("polled", func() bool { mu.Lock(); defer mu.Unlock(); return requests > 4*n })
			second := s.controller(s.kubeconfig, "--insecure-no-auth", "--leader-elect")
			<-second.address
			if leader := s.leader(map[int]*process{
				first.Process.Pid:  first,
				second.Process.Pid: second,
			}); leader != first {
				t.Fatal("the first one does not lead")
			}
			if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			done = true
			mu.Unlock()
			for i, id := range ids {
				v, err := s.scheduler.Wait(s.ctx, operations.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
				if err != nil || v.Status != operations.Succeeded {
					t.Fatalf("operation %d: %+v (%v)", i, v, err)
				}
			}
			if gone {
				if err := second.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				if err := second.end(s.ctx, t); err != nil {
					t.Fatalf("%v\n%s", err, second.log)
				}
			}
			mu.Lock()
			before := requests
			mu.Unlock()
			written := way.count()
			release := way.hold()
			if err := first.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			var ended error
			over := false
			// the second request comes seconds later, after the first one was given up
			for asked := 0; asked < 2 && !over; {
				select {
				case <-way.asked:
					asked++
				case ended = <-first.ended: // its clock alone has ended it
					over = true
				case <-s.ctx.Done():
					first.mu.Lock()
					defer first.mu.Unlock()
					t.Fatalf("it does not ask for the Lease: %d\n%s", asked, first.log)
				}
			}
			release()
			if !over {
				ended = first.end(s.ctx, t)
			}
			var exit *exec.ExitError
			if err := ended; !errors.As(err, &exit) || exit.ExitCode() != 1 ||
				!strings.Contains(first.log.String(), "lost the Lease") {
				t.Errorf("the deposed leader: %v\n%s", err, first.log)
			}
			mu.Lock()
			defer mu.Unlock()
			t.Logf("after the pause: %d requests, %d writes", requests-before, way.count()-written)
			if made := requests - before; made > atOnce {
				t.Errorf("%d requests were made after the pause", made)
			}
			if made := way.count() - written; made > atOnce {
				t.Errorf("%d statuses were written after the pause", made)
			}
		})
	}
}
