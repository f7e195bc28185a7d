package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// firstOperationBound bounds the time until the first operation of a new leader, with time to spare for a busy machine.
// It is normally some milliseconds, and up to a minute if the leader waits for a bookmark.
const firstOperationBound = 10 * time.Second

// TestTakeover ends the leader, by SIGKILL or SIGSTOP, while it has fifty operations in progress. No other change in
// the cluster shows the other replica the age of its cache. That replica takes the expired Lease, and continues at
// once.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Killed": syscall.SIGKILL, "Stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, env.Config(t))
			const n = 50
			var mu sync.Mutex
			calls, gone := map[string]int{}, false
			var first time.Time // when a call was repeated
			s.receiver.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				mu.Lock()
				calls[r.Header.Get("Idempotency-Key")]++
				repeated := gone
				if repeated && first.IsZero() {
					first = time.Now()
				}
				mu.Unlock()
				if !repeated {
					<-r.Context().Done()
				}
			})
			s.webhook("hang", "/", func(w *v1alpha1.WebhookSpec) { // each replica makes one attempt of each call
				w.RequestTimeout = metav1.Duration{Duration: 5 * time.Minute}
			})
			replicas := map[int]*process{}
			for range 2 {
				p := s.controller(s.kubeconfig, "--insecure-no-auth", "--leader-elect")
				replicas[p.Process.Pid] = p
				<-p.address
			}
			ids := s.scheduleMany(n, operations.Request{Webhooks: []string{"hang"}})
			s.eventually("in progress", func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) == n })
			leader := s.leader(replicas)
			mu.Lock()
			gone = true
			mu.Unlock()
			at := time.Now()
			if err := leader.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			for i, id := range ids {
				v, err := s.scheduler.Wait(s.ctx, operations.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
				if err != nil || v.Status != operations.Succeeded {
					t.Fatalf("operation %d: %+v (%v)", i, v, err)
				}
			}
			if signal == syscall.SIGSTOP { // it notices the new leader, and does nothing more
				if err := leader.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if err := leader.end(s.ctx, t); err == nil ||
					!strings.Contains(leader.log.String(), "lost the Lease") ||
					strings.Contains(leader.log.String(), "panic") {
					t.Errorf("the deposed leader: %v\n%s", err, leader.log)
				}
			}
			if s.leader(replicas) == leader {
				t.Error("the former leader still leads")
			}
			lease := s.lease()
			mu.Lock()
			defer mu.Unlock()
			t.Logf("the Lease was taken after %v, and the first operation moved %v later",
				lease.Spec.AcquireTime.Sub(at),
				first.Sub(lease.Spec.AcquireTime.Time))
			if took := first.Sub(lease.Spec.AcquireTime.Time); took > firstOperationBound {
				t.Errorf("the first operation moved %v after the Lease was taken", took)
			}
			for key, made := range calls {
				if made != 2 {
					t.Errorf("the call %s was made %d times, want once by each leader", key, made)
				}
			}
		})
	}
}
