package main

import (
	"errors"
	"fmt"
	"io"
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

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
)

// front is a way to the API server that counts the writes of operations' statuses which pass.
type front struct {
	mu     sync.Mutex
	writes int
}

// newFront returns a kubeconfig of that way.
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
	f := &front{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/operations/") && strings.HasSuffix(r.URL.Path, "/status") {
			f.mu.Lock()
			f.writes++
			f.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return f, writeKubeconfig(t, &rest.Config{Host: server.URL}, "none")
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// TestFencedLeader stops the leader, with SIGSTOP, while it polls for a hundred operations ten times a second each. The other replica takes over and
// ends them all; in one case it ends, too, and gives the Lease back. When the first one is woken, a hundred polls are overdue, and it makes none,
// but for those that it was about to send when it was stopped; nor does it write.
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
			ids := s.scheduleMany(n, operation.Request{Webhooks: []string{"work"}})
			s.eventually("polled", func() bool { mu.Lock(); defer mu.Unlock(); return requests > 4*n })
			second := s.controller(s.kubeconfig, "--insecure-no-auth", "--leader-elect")
			<-second.address
			if leader := s.leader(map[int]*process{first.Process.Pid: first, second.Process.Pid: second}); leader != first {
				t.Fatal("the first one does not lead")
			}
			if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			done = true
			mu.Unlock()
			for i, id := range ids {
				v, err := s.scheduler.Wait(s.ctx, operation.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
				if err != nil || v.Status != operation.Succeeded {
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
			if err := first.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := first.end(s.ctx, t); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(first.log.String(), "lost the Lease") {
				t.Errorf("the deposed leader: %v\n%s", err, first.log)
			}
			mu.Lock()
			defer mu.Unlock()
			t.Logf("after it was woken: %d requests, %d writes", requests-before, way.count()-written)
			if made := requests - before; made > atOnce {
				t.Errorf("%d requests were made after it was woken", made)
			}
			if made := way.count() - written; made > atOnce {
				t.Errorf("%d statuses were written after it was woken", made)
			}
		})
	}
}
