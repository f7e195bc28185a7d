package call_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
)

// Every status not listed as retryable is final, whatever the headers say.
func TestEverythingElseIsFinal(t *testing.T) {
	t.Parallel()
	retried := map[int]bool{429: true, 500: true, 502: true, 503: true, 504: true, 401: true}
	for code := 300; code < 600; code++ {
		if code == 304 || retried[code] {
			continue
		}
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, withHeader(answer(code, `{"kind":"Status","details":{"retryAfterSeconds":1}}`),
					"Retry-After", "1"))
				for _, verb := range []call.Verb{call.VerbGet, call.VerbUpdate, call.VerbCreate, call.VerbDelete} {
					r := get()
					r.Verb = verb
					if verb != call.VerbGet {
						r.Body = []byte(web)
					}
					before := len(b.seen())
					_, err := call.Do(t.Context(), b.client, r, call.Policy{})
					if n := len(b.seen()) - before; err == nil || n != 1 {
						t.Errorf("%s: %v after %d requests, want an error after one", verb, err, n)
					}
					if e, ok := errors.AsType[*call.Error](err); !ok || e.Code != code {
						t.Errorf("%s: the error does not say %d: %v", verb, code, err)
					}
				}
			})
		})
	}
}

func TestReadsAreRedirected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, withHeader(answer(307, ""), "Location", "/other"), answer(200, web))
		if a, err := call.Do(t.Context(), b.client, get(), call.Policy{}); err != nil || string(a.Raw) != web {
			t.Errorf("got %+v, %v", a, err)
		}
		circle := newBench(t, call.Options{}, withHeader(answer(307, ""), "Location", "/round"))
		if _, err := call.Do(t.Context(), circle.client, get(), call.Policy{Retries: -1}); err == nil ||
			len(circle.seen()) != 10 {
			t.Errorf("got %v after %d requests", err, len(circle.seen()))
		}
	})
}

// A certificate that is not trusted is not retried.
func TestTrustIsFinal(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(answer(200, web))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	c, err := call.New(call.Options{Config: &rest.Config{Host: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = call.Do(t.Context(), c, get(), call.Policy{})
	e, ok := errors.AsType[*call.Error](err)
	if !ok || len(e.Tries) != 1 || e.Tries[0].Reason != "tls" {
		t.Errorf("got %v, want one try that failed for tls", err)
	}
}

// The rate limit of a configuration applies before each try, and its wait does not count for the timeout. A canceled
// call does not wait.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{Config: &rest.Config{QPS: 0.5, Burst: 1}}, answer(200, web))
		for range 3 {
			if _, err := call.Do(t.Context(), b.client, get(), call.Policy{Timeout: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff([]time.Duration{2 * time.Second, 2 * time.Second}, b.waits(),
			cmpopts.EquateApprox(0, float64(10*ms))); d != "" {
			t.Error(d)
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		begun := time.Now()
		if _, err := call.Do(ctx, b.client, get(), call.Policy{}); !errors.Is(err, stop) ||
			time.Since(begun) != time.Second || len(b.seen()) != 3 {
			t.Errorf("after %v and %d requests: %v", time.Since(begun), len(b.seen()), err)
		}
	})
}

// Retries are permitted in proportion to the calls of a client. The budget of a policy replaces that of the client.
func TestBudgetFollowsTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := &call.Budget{PerSecond: 0.001, Ratio: 0.5, Burst: 2, MaxWait: time.Second}
		healthy := true
		b := newBench(t, call.Options{Budget: budget}, func(w http.ResponseWriter, r *http.Request) {
			if healthy {
				answer(200, web)(w, r)
			} else {
				status(503, "ServiceUnavailable", "x")(w, r)
			}
		})
		retries := func(calls int, p call.Policy) int {
			before := len(b.seen())
			for range calls {
				if _, err := call.Do(t.Context(), b.client, get(), p); err == nil {
					t.Fatal("a call succeeded")
				}
			}
			return len(b.seen()) - before - calls
		}
		healthy = false
		once := call.Policy{Retries: 1}
		if n := retries(8, once); n != 5 { // the burst of 2, and half a token for each call that does not overflow the burst
			t.Errorf("%d retries of 8 calls, want 5", n)
		}
		if n := retries(4, call.Policy{Retries: 1, Budget: new(call.Budget)}); n != 4 {
			t.Errorf("%d retries of 4 calls with a budget of their own, want 4", n)
		}
		healthy = true
		for range 20 {
			if _, err := call.Do(t.Context(), b.client, get(), once); err != nil {
				t.Fatal(err)
			}
		}
		healthy = false
		if n := retries(2, once); n != 2 {
			t.Errorf("%d retries of 2 calls after 20 successful ones, want 2", n)
		}
	})
}
