package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// reviewer is the transport of an API server. It counts reviews, and blocks those of unknown tokens until release is
// closed.
type reviewer struct {
	release       chan struct{}
	tokens, other atomic.Int64
	held          atomic.Int64
}

func (v *reviewer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			v.tokens.Add(1)
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			if r.Body = io.NopCloser(bytes.NewReader(body)); bytes.Contains(body, []byte("junk-")) && v.release != nil {
				v.held.Add(1)
				defer v.held.Add(-1)
				select {
				case <-v.release:
				case <-r.Context().Done():
				}
			}
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			v.other.Add(1)
		}
		return next.RoundTrip(r)
	})
}

// reviewed is setup with an authorizer that uses the reviewer.
func reviewed(t *testing.T, v *reviewer) (*api, *httpapi.Kubernetes) {
	var k *httpapi.Kubernetes
	a := setupWith(t, func(a *api, o *httpapi.Options) {
		config := rest.CopyConfig(a.config)
		config.Wrap(v.wrap)
		calls, err := call.New(call.Options{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(calls.Close)
		k = httpapi.NewKubernetes(calls)
		o.Authorizer, o.All = k, true
	})
	return a, k
}

// from calls the handler directly, as a client with that address.
func (a *api) from(address, token, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(a.ctx, "GET", path, nil)
	r.RemoteAddr = address + ":1"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w
}

// TestJunkTokensDelayNoOtherCaller floods the server with invalid tokens while the API server is slow to refuse them.
// Other callers are not delayed.
func TestJunkTokensDelayNoOtherCaller(t *testing.T) {
	v := &reviewer{release: make(chan struct{})}
	a, k := reviewed(t, v)
	now := &atomic.Int64{}
	now.Store(time.Now().UnixNano())
	k.SetClock(func() time.Time { return time.Unix(0, now.Load()) })
	if got := a.from("10.0.0.2", a.tokens["all"], "/operations"); got.Code != http.StatusOK {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	var flood sync.WaitGroup
	var refused atomic.Int64
	for i := range 300 {
		flood.Go(func() {
			got := a.from("10.0.0.1", fmt.Sprint("junk-", i), "/operations")
			switch got.Code {
			case http.StatusTooManyRequests:
				refused.Add(1)
				if got.Header().Get("Retry-After") == "" || got.Header().Get("Content-Type") != "application/problem+json" {
					t.Errorf("no Retry-After: %v", got.Header())
				}
			case http.StatusUnauthorized:
			default:
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
	a.eventually(func() bool { return v.held.Load() == 8 && refused.Load() >= 300-8-32 })
	if got := a.from("10.0.0.2", a.tokens["all"], "/operations"); got.Code != http.StatusOK {
		t.Errorf("a known token: %d %s", got.Code, got.Body)
	}
	now.Add(int64(time.Minute))
	if got := a.from("10.0.0.1", a.tokens["all"], "/operations"); got.Code != http.StatusOK {
		t.Errorf("a token that was valid a minute ago, from the address of the flood: %d %s", got.Code, got.Body)
	}
	if got := a.from("10.0.0.3", a.tokens["reader"], "/operations"); got.Code != http.StatusOK {
		t.Errorf("a token that was not reviewed yet: %d %s", got.Code, got.Body)
	}
	close(v.release)
	flood.Wait()
	asked := v.tokens.Load()
	for range 50 {
		if got := a.from("10.0.0.4", "junk-again", "/operations"); got.Code != http.StatusUnauthorized {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
	if n := v.tokens.Load() - asked; n != 1 {
		t.Errorf("the same token was reviewed %d times", n)
	}
	asked = v.tokens.Load()
	if got := a.from("10.0.0.4", strings.Repeat("x", 20<<10), "/operations"); got.Code != http.StatusUnauthorized ||
		v.tokens.Load() != asked {
		t.Errorf("a token of 20 KiB: %d, and %d reviews", got.Code, v.tokens.Load()-asked)
	}
}

// TestReviewsAreShared: concurrent requests of one caller share one review of its token and one of its right.
// Impossible namespaces are not reviewed.
func TestReviewsAreShared(t *testing.T) {
	v := &reviewer{}
	a, k := reviewed(t, v)
	now := time.Now()
	k.SetClock(func() time.Time { return now }) // answers are kept for some seconds
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			if got := a.from("10.0.0.1", a.tokens["reader"], "/operations"); got.Code != http.StatusOK {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
	callers.Wait()
	for _, namespace := range []string{"..", "a%2Fb", "UPPER", strings.Repeat("n", 64), "a%00b"} {
		if got := a.from("10.0.0.1", a.tokens["reader"],
			"/operations?namespace="+namespace); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", namespace, got.Code, got.Body)
		}
	}
	if diff := cmp.Diff([]int64{1, 1}, []int64{v.tokens.Load(), v.other.Load()}); diff != "" {
		t.Errorf("reviews of tokens and rights (-want +got):\n%s", diff)
	}
}

// TestALateCallerSharesTheReview: a caller without a remembered answer looks again at its turn, before it asks.
func TestALateCallerSharesTheReview(t *testing.T) {
	v := &reviewer{}
	a, k := reviewed(t, v)
	var looked atomic.Bool
	now := time.Now() // answers are kept for some seconds
	k.SetClock(func() time.Time {
		if !looked.Swap(true) { // another caller gets the answer between the lookup and the request
			a.from("10.0.0.2", a.tokens["reader"], "/operations")
		}
		return now
	})
	if got := a.from("10.0.0.1", a.tokens["reader"], "/operations"); got.Code != http.StatusOK {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if n := v.tokens.Load(); n != 1 {
		t.Errorf("the token was reviewed %d times", n)
	}
}
