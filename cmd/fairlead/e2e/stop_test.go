package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// modes makes the receiver of a site answer in all modes, after up to 100 ms. Callbacks go to the process that serves
// at the time.
type modes struct {
	*site
	front   *httptest.Server       // the --public-url
	serving atomic.Pointer[string] // the address to which front forwards
	callers sync.WaitGroup

	mu     sync.Mutex
	delay  time.Duration  // how long a call of the Webhook sync takes, at least
	made   map[string]int // calls by idempotency key, without polls
	polls  map[string]int
	cut    []string // calls that the controller canceled
	failed []string // callbacks that were not accepted
}

func newModes(s *site) *modes {
	m := &modes{site: s, made: map[string]int{}, polls: map[string]int{}}
	m.front = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: *m.serving.Load()}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	s.t.Cleanup(m.front.Close)
	s.t.Cleanup(m.callers.Wait)
	s.receiver.Config.Handler = m
	m.webhooks(s)
	return m
}

// webhooks creates one Webhook of each mode.
func (m *modes) webhooks(s *site) {
	s.t.Helper()
	s.webhook("sync", "/sync", nil)
	s.webhook("async", "/async", func(w *v1alpha1.WebhookSpec) {
		w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}
	})
	s.webhook("callback", "/callback", func(w *v1alpha1.WebhookSpec) {
		w.Mode, w.Request.Body = v1alpha1.ModeAsyncCallback, new(`{"callback": "{{.CallbackURL}}"}`)
	})
}

// setDelay sets how long a call of the Webhook sync takes, at least.
func (m *modes) setDelay(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = d
}

// ServeHTTP implements the receiver.
func (m *modes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Callback string }
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_ = json.Unmarshal(raw, &body) // a poll has no body
	key := r.Header.Get("Idempotency-Key")
	m.mu.Lock()
	if strings.HasPrefix(r.URL.Path, "/jobs/") {
		m.polls[key]++
	} else {
		m.made[key]++
	}
	polls, delay := m.polls[key], m.delay
	if r.URL.Path != "/sync" {
		delay = 0
	}
	m.mu.Unlock()
	timer := time.NewTimer(delay + time.Duration(rand.IntN(100))*time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		m.mu.Lock()
		m.cut = append(m.cut, r.URL.Path)
		m.mu.Unlock()
	}
	switch {
	case r.URL.Path == "/async":
		w.Header().Set("Location", "/jobs/1")
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/callback":
		w.WriteHeader(http.StatusAccepted)
		m.callers.Go(func() { m.callBack(body.Callback) })
	case strings.HasPrefix(r.URL.Path, "/jobs/") && polls < 3:
		_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
	case strings.HasPrefix(r.URL.Path, "/jobs/"):
		_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
	}
}

// callBack reports a success until a replica accepts it, as receivers should.
func (m *modes) callBack(to string) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ; m.ctx.Err() == nil; <-again.C {
		req, err := http.NewRequestWithContext(m.ctx, http.MethodPost, to, strings.NewReader(`{"status":"SUCCEEDED"}`))
		if err != nil {
			m.mu.Lock()
			m.failed = append(m.failed, err.Error())
			m.mu.Unlock()
			return
		}
		answer, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch code := answer.StatusCode; {
		case code == http.StatusNoContent || code == http.StatusConflict:
			return
		// between two processes, before the call is recorded, or from a replica that is paused or cut off
		case code == http.StatusNotFound, code == http.StatusRequestTimeout, code == http.StatusTooManyRequests,
			code >= http.StatusInternalServerError:
		default:
			m.mu.Lock()
			m.failed = append(m.failed, fmt.Sprintf("%d %s", code, text))
			m.mu.Unlock()
			return
		}
	}
}

// process starts a controller that gets the callbacks.
func (m *modes) process(args ...string) *process {
	m.t.Helper()
	p := m.controller(m.kubeconfig, append([]string{
		"--insecure-no-auth", "--public-url", m.front.URL, "--drain", "1m", // a slow machine interrupts no call
	}, args...)...)
	select {
	case at := <-p.address:
		m.serving.Store(&at)
		p.address <- at
	case err := <-p.ended:
		m.t.Fatalf("%v: %s", err, p.log)
	}
	return p
}

// stop ends a process, and fails the test unless it ends as it should.
func (m *modes) stop(p *process) {
	m.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	if err := p.end(m.ctx, m.t); err != nil || strings.Contains(p.log.String(), "aborting calls") {
		m.t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
}

// once checks that every operation has succeeded and every call was made once.
func (m *modes) once(ids []string) {
	m.t.Helper()
	want := map[string]int{}
	for i, id := range ids {
		v, err := m.scheduler.Wait(m.ctx, operations.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		if v.Status != operations.Succeeded {
			m.t.Errorf("operation %d: %s %s %s", i, v.Status, v.Reason, v.Error)
		}
		for _, name := range []string{"sync", "async", "callback"} {
			want[m.namespace+"."+id+"."+name] = 1
		}
	}
	m.callers.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(want, m.made); diff != "" || len(m.cut)+len(m.failed) > 0 {
		m.t.Errorf("cut off: %q, failed callbacks: %q; calls, -want +got:\n%s", m.cut, m.failed, diff)
	}
}

var allModes = operations.Request{Webhooks: []string{"sync", "async", "callback"}}

// TestStoppedController ends the controller with SIGTERM at a dozen random moments during calls of all modes. No call
// is interrupted, and none is made twice.
func TestStoppedController(t *testing.T) {
	t.Parallel()
	m := newModes(newSite(t, env.Config(t)))
	parallel := allModes
	parallel.Execution = operations.Parallel
	ids := m.scheduleMany(120, parallel)
	for range 12 {
		p := m.process()
		timer := time.NewTimer(time.Duration(rand.IntN(250)) * time.Millisecond)
		<-timer.C // the random moment
		m.stop(p)
	}
	last := m.process()
	m.once(ids)
	m.stop(last)
}

// TestStoppedLeader ends one leader after the other. Each hands the Lease to the next one after its calls are recorded.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	m := newModes(newSite(t, env.Config(t)))
	ids := m.scheduleMany(60, allModes)
	now := m.process("--leader-elect", "--max-calls", "4")
	for range 3 {
		next := m.process("--leader-elect", "--max-calls", "4")
		m.mu.Lock()
		before := len(m.made)
		m.mu.Unlock()
		m.eventually("calling", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.made) > before+5 || len(m.made) == 3*len(ids)
		})
		m.stop(now)
		now = next
	}
	m.once(ids)
	m.stop(now)
}

// hangingCall creates a site with one operation whose call hangs until release, and a controller that makes the call.
func hangingCall(t *testing.T, args ...string) (s *site, p *process, address string, release func()) {
	t.Helper()
	s = newSite(t, env.Config(t))
	asked, released := make(chan struct{}, 4), make(chan struct{})
	s.receiver.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	s.webhook("hang", "/", nil)
	p = s.controller(s.kubeconfig, append([]string{"--insecure-no-auth"}, args...)...)
	address = <-p.address
	s.scheduleMany(1, operations.Request{Webhooks: []string{"hang"}})
	select {
	case <-asked:
	case <-s.ctx.Done():
		t.Fatal("the receiver was not called")
	}
	return s, p, address, release
}

func (s *site) get(url string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	raw, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw)
}

// TestServesWhileItDrains: after the signal, a controller is not ready but answers all requests until its calls have
// ended. Then event streams end, and so does the process.
func TestServesWhileItDrains(t *testing.T) {
	t.Parallel()
	s, p, address, release := hangingCall(t, "--drain", "1m")
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+address+"/operations/app/0/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "event: progress\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.eventually("not ready", func() bool {
		code, _ := s.get("http://" + address + "/readyz")
		return code == http.StatusServiceUnavailable
	})
	if code, body := s.get("http://" + address + "/operations/app/0"); code != http.StatusOK {
		t.Errorf("GET: %d %s", code, body)
	}
	release()
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "\ndata: ") {
		t.Errorf("the stream is cut: %v\n%s", err, rest)
	}
	if err := p.end(s.ctx, t); err != nil || strings.Contains(p.log.String(), "aborting calls") {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
	if op, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "0"}); err != nil ||
		op.Status.Webhooks[0].State != v1alpha1.PhaseSuccess {
		t.Errorf("recorded is %+v (%v)", op, err)
	}
}

// TestDrainIsBounded: a call that takes longer than --drain is canceled.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	s, p, _, _ := hangingCall(t, "--drain", "300ms")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(s.ctx, t); err != nil || !strings.Contains(p.log.String(), "aborting calls") {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
}

// TestSecondSignal: a second signal ends the wait for calls.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s, p, address, _ := hangingCall(t, "--drain", "10m")
	// it has started, and then noticed the first signal
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		s.eventually("readiness "+http.StatusText(status), func() bool {
			code, _ := s.get("http://" + address + "/readyz")
			return code == status
		})
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	var exit *exec.ExitError
	if err := p.end(s.ctx, t); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("after the second SIGTERM: %v\n%s", err, p.log)
	}
}
