package call_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
)

// protobuf encodes an object as an API server does.
func protobuf(t *testing.T, obj interface{ Marshal() ([]byte, error) }, kind string) []byte {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	body, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

func TestErrorSaysWhatHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		invalid := answer(422,
			`{"kind":"Status","code":422,"reason":"Invalid","message":"ConfigMap \"web\" is invalid: data: too long",
			"details":{"causes":[{"reason":"FieldValueTooLong","message":"too long","field":"data"}]}}`)
		b := newBench(t, call.Options{}, status(503, "ServiceUnavailable", "x"), status(503, "ServiceUnavailable", "x"), hang,
			invalid)
		_, err := call.Do(t.Context(), b.client, call.Request{
			Verb: call.VerbUpdate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web", Subresource: "status",
			Body: []byte(web),
		}, call.Policy{})
		e, ok := errors.AsType[*call.Error](err)
		if !ok {
			t.Fatalf("got %T: %v", err, err)
		}
		want := `cannot update status of ConfigMap a/web: ConfigMap "web" is invalid: data: too long (after 4 tries in 12.8s: 2× 503 ServiceUnavailable, timeout)`
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]metav1.StatusCause{{Type: "FieldValueTooLong", Message: "too long", Field: "data"}},
			e.Causes); diff != "" {
			t.Error(diff)
		}
		if e.Code != 422 || e.Reason != metav1.StatusReasonInvalid || len(e.Tries) != 4 {
			t.Errorf("got %+v", e)
		}
	})
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, call.Options{}, answer(200, web))
	for reason, r := range map[string]call.Request{
		"no verb":            {Resource: configMaps, Name: "web"},
		"no resource":        {Verb: call.VerbGet, Name: "web"},
		"a get without name": {Verb: call.VerbGet, Resource: configMaps},
		"a name with slash":  {Verb: call.VerbGet, Resource: configMaps, Name: "a/../b"},
		"a parent directory": {Verb: call.VerbGet, Resource: configMaps, Namespace: "..", Name: "b"},
		"an untyped patch":   {Verb: call.VerbPatch, Resource: configMaps, Name: "web"},
	} {
		if _, err := call.Do(t.Context(), b.client, r, call.Policy{}); !isInvalid(err) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	if n := len(b.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestLogAndMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := call.NewMetrics()
		b := newBench(t, call.Options{Metrics: m, Logger: slog.New(slog.NewJSONHandler(&log, nil))},
			reset, status(503, "ServiceUnavailable", "x"), withHeader(answer(200, web), "Warning", `299 - "v1 is old"`))
		for range 2 {
			if _, err := call.Do(t.Context(), b.client, get(), call.Policy{}); err != nil {
				t.Fatal(err)
			}
		}
		var lines []string
		var ids []string
		for l := range strings.Lines(log.String()) {
			var e struct {
				Msg, Request, Reason, Kind, Namespace, Name, Warning string
				RetryIn                                              time.Duration
			}
			if err := json.Unmarshal([]byte(l), &e); err != nil {
				t.Fatal(err)
			}
			if e.Request != "" {
				ids = append(ids, e.Request)
			}
			lines = append(lines, fmt.Sprint(e.Msg, " ", e.Kind, " ", e.Namespace, "/", e.Name, " ", e.Reason, e.Warning, " ",
				e.RetryIn))
		}
		if diff := cmp.Diff([]string{
			"request failed ConfigMap a/web reset 400ms", "request failed ConfigMap a/web ServiceUnavailable 800ms",
			"the API server warns  / v1 is old 0s",
		}, lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		for i, id := range ids {
			if sent := b.headers[i].Get("Audit-Id"); sent != id {
				t.Errorf("try %d was logged as %q and sent as %q", i, id, sent)
			}
		}
		err := testutil.CollectAndCompare(m, strings.NewReader(`
# HELP fairlead_call_requests_total Requests sent to the API server, one for each attempt.
# TYPE fairlead_call_requests_total counter
fairlead_call_requests_total{code="200",resource="configmaps",verb="get"} 2
fairlead_call_requests_total{code="503",resource="configmaps",verb="get"} 1
fairlead_call_requests_total{code="none",resource="configmaps",verb="get"} 1
# HELP fairlead_call_retries_total Retried attempts, by the reason for the retry.
# TYPE fairlead_call_retries_total counter
fairlead_call_retries_total{reason="ServiceUnavailable",verb="get"} 1
fairlead_call_retries_total{reason="reset",verb="get"} 1
# HELP fairlead_call_in_flight Requests in flight.
# TYPE fairlead_call_in_flight gauge
fairlead_call_in_flight 0
`), "fairlead_call_requests_total", "fairlead_call_retries_total", "fairlead_call_in_flight")
		if err != nil {
			t.Error(err)
		}
	})
}

func TestCredentialsAreReloadedOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guard := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer new" {
			answer(200, web)(w, r)
			return
		}
		status(401, "Unauthorized", "who are you")(w, r)
	}
	b := newBench(t, call.Options{Config: &rest.Config{BearerTokenFile: file}}, guard)
	_, err := call.Do(t.Context(), b.client, get(), call.Policy{})
	if e, ok := errors.AsType[*call.Error](err); !ok || e.Reason != metav1.StatusReasonUnauthorized || len(b.seen()) != 2 {
		t.Fatalf("after %d requests: %v", len(b.seen()), err)
	}
	if err := os.WriteFile(file, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want := 4; want <= 5; want++ { // a 401 and the object, then the object at once
		if _, err := call.Do(t.Context(), b.client, get(), call.Policy{}); err != nil || len(b.seen()) != want {
			t.Fatalf("after %d requests: %v", len(b.seen()), err)
		}
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := &call.Budget{PerSecond: 1, Ratio: -1, Burst: 2, MaxWait: 3 * time.Second}
		m := call.NewMetrics()
		b := newBench(t, call.Options{Budget: budget, Metrics: m}, status(503, "ServiceUnavailable", "x"))
		// Ten calls fail at the same moment: two retries are free, three wait for their tokens, five are refused.
		errs := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := call.Do(t.Context(), b.client, get(), call.Policy{Retries: 1})
				errs <- err
			}()
		}
		refused := 0
		for range 10 {
			if err := <-errs; errors.Is(err, call.ErrBudget) {
				refused++
			} else if err == nil {
				t.Error("a call succeeded")
			}
		}
		if n := len(b.seen()); refused != 5 || n != 15 {
			t.Errorf("%d calls refused, %d requests sent; want 5 and 15", refused, n)
		}
	})
}

// A caller that gives up while it waits for a token leaves the token to others.
func TestBudgetOfCanceledCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := &call.Budget{PerSecond: 1, Ratio: -1, Burst: 1, MaxWait: 3 * time.Second}
		b := newBench(t, call.Options{Budget: budget}, status(503, "ServiceUnavailable", "x"))
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 4 { // one has its token, the others wait for theirs
			waiting.Go(func() { _, _ = call.Do(ctx, b.client, get(), call.Policy{Retries: 1, Base: time.Hour, Cap: time.Hour}) })
		}
		synctest.Wait()
		cancel()
		waiting.Wait()
		begun := time.Now()
		_, err := call.Do(t.Context(), b.client, get(), call.Policy{Retries: 1})
		if errors.Is(err, call.ErrBudget) || time.Since(begun) != 400*ms {
			t.Errorf("after %v: %v; want a retry after its back-off", time.Since(begun), err)
		}
		// A caller whose deadline precedes the next try returns its token, too.
		for range 10 {
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := call.Do(short, b.client, get(), call.Policy{}); errors.Is(err, call.ErrBudget) {
				t.Fatalf("got %v", err)
			}
			cancel()
		}
	})
}

// Calls that are refused together reload the credentials once. A later refusal reloads them again.
func TestCredentialsAreReloadedOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		rotate := func(token string) {
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rotate("first")
		var valid atomic.Value
		var reloads atomic.Int32
		b := newBench(t, call.Options{Config: &rest.Config{
			BearerTokenFile: file,
			WrapTransport: func(next http.RoundTripper) http.RoundTripper {
				reloads.Add(1) // and once for New
				return next
			},
		}}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == valid.Load() {
				answer(200, web)(w, r)
				return
			}
			<-time.After(100 * ms)
			status(401, "Unauthorized", "who are you")(w, r)
		})
		for want := int32(1); want <= 2; want++ {
			token := fmt.Sprint("token ", want)
			valid.Store("Bearer " + token)
			rotate(token)
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if _, err := call.Do(t.Context(), b.client, get(), call.Policy{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := reloads.Load() - 1; n != want {
				t.Errorf("%d reloads for 50 calls, want %d in all", n, want)
			}
		}
	})
}

func TestReloadThatFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	b := newBench(t, call.Options{Config: &rest.Config{BearerToken: "old", BearerTokenFile: file}},
		status(401, "Unauthorized", "who are you"))
	for range 2 { // and it leaves no lock behind
		_, err := call.Do(t.Context(), b.client, get(), call.Policy{})
		if err == nil || !strings.Contains(err.Error(), "cannot reload the credentials") ||
			!strings.Contains(err.Error(), "no such file") || !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, want the refusal and the error of the reload", err)
		}
	}
}
