package schedule

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// idempotencyKey is the header that marks a repetition of one call.
const idempotencyKey = "Idempotency-Key"

// outside are the services outside the cluster, by host. It counts the calls with an effect. It is safe for concurrent
// use.
type outside struct {
	services map[string]http.Handler

	mu     sync.Mutex
	counts map[string]int
	keys   map[string]bool
}

func newOutside(services map[string]func() http.Handler) *outside {
	o := &outside{services: map[string]http.Handler{}, counts: map[string]int{}, keys: map[string]bool{}}
	for host, service := range services {
		o.services[host] = service()
	}
	return o
}

// effects returns how often each call had its effect.
func (o *outside) effects() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.counts)
}

// serve calls the service, and counts a call that is not idempotent and succeeds. A repetition with the same
// idempotency key is not counted.
func (o *outside) serve(r *http.Request, h http.Handler, body []byte) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	if (r.Method != http.MethodPost && r.Method != http.MethodPatch) || resp.StatusCode >= 300 {
		return resp
	}
	call := r.Method + " " + r.URL.Host + r.URL.EscapedPath()
	if len(body) > 0 && len(body) <= 200 {
		call += " " + string(body)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := r.Header.Get(idempotencyKey); k != "" {
		if o.keys[call+k] {
			return resp
		}
		o.keys[call+k] = true
	}
	o.counts[call]++
	return resp
}

// caller sends the calls of one process to the services outside, with the faults of the plan.
type caller struct {
	*wire
	outside *outside
	process *Process
}

// RoundTrip implements http.RoundTripper.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.process.isDead() {
		return nil, errKilled
	}
	h := c.outside.services[r.URL.Host]
	if h == nil {
		return nil, fmt.Errorf("there is no service %q: give it to simulate.External", r.URL.Host)
	}
	r = r.Clone(r.Context())
	body, err := content(r)
	if err != nil {
		return nil, err
	}
	if r.RequestURI = r.URL.RequestURI(); r.Body == nil {
		r.Body = http.NoBody
	}
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		c.rec.request("the GET of " + r.URL.Host + r.URL.Path)
		return c.outside.serve(r, h, body), nil
	}
	q := request{verb: strings.ToLower(r.Method)}
	q.resource.Resource = r.URL.Host
	return c.deliver(r, c.process, q, strings.Trim(r.URL.Path, "/"), body, func() {},
		func(r *http.Request) (*http.Response, error) {
			return c.outside.serve(r, h, body), nil
		})
}
