package call_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
)

const ms = time.Millisecond

func TestRetries(t *testing.T) {
	t.Parallel()
	ok := answer(200, web)
	five03 := status(503, "ServiceUnavailable", "come back")
	for _, tc := range []struct {
		reason string
		policy call.Policy
		script []http.HandlerFunc
		waits  []time.Duration
		err    func(error) bool
	}{
		{"a successful answer needs one try", call.Policy{}, []http.HandlerFunc{ok}, nil, nil},
		{
			"503 is tried again, doubling",
			call.Policy{},
			[]http.HandlerFunc{five03, five03, five03, ok},
			[]time.Duration{400 * ms, 800 * ms, 1600 * ms},
			nil,
		},
		{
			"429, 500, 502 and 504 are tried again",
			call.Policy{},
			[]http.HandlerFunc{
				status(429, "TooManyRequests", "x"), status(500, "InternalError", "x"), answer(502, ""),
				status(504, "Timeout", "x"), ok,
			},
			[]time.Duration{400 * ms, 800 * ms, 1600 * ms, 3200 * ms},
			nil,
		},
		{
			"the back-off stops at its cap and the retries at five",
			call.Policy{Cap: time.Second},
			[]http.HandlerFunc{five03},
			[]time.Duration{400 * ms, 800 * ms, 1000 * ms, 1000 * ms, 1000 * ms},
			apierrors.IsServiceUnavailable,
		},
		{
			"negative retries mean one try",
			call.Policy{Retries: -1},
			[]http.HandlerFunc{five03},
			nil,
			apierrors.IsServiceUnavailable,
		},
		{
			"Retry-After wins, with a little jitter on top",
			call.Policy{},
			[]http.HandlerFunc{withHeader(status(429, "TooManyRequests", "x"), "Retry-After", "7"), ok},
			[]time.Duration{7400 * ms},
			nil,
		},
		{"so does retryAfterSeconds of the Status", call.Policy{}, []http.HandlerFunc{
			answer(500, `{"kind":"Status","reason":"ServerTimeout","code":500,"details":{"retryAfterSeconds":3}}`), ok,
		}, []time.Duration{3400 * ms}, nil},
		{
			"a Retry-After of zero or in the past is ignored",
			call.Policy{},
			[]http.HandlerFunc{
				withHeader(status(503, "ServiceUnavailable", "x"), "Retry-After", "0"),
				withHeader(status(503, "ServiceUnavailable", "x"), "Retry-After", "Sat, 01 Jan 2000 00:00:00 GMT"), ok,
			},
			[]time.Duration{400 * ms, 800 * ms},
			nil,
		},
		{
			"a date in the future is waited for",
			call.Policy{},
			[]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
				withHeader(status(503, "ServiceUnavailable", "x"), "Retry-After",
					time.Now().Add(9*time.Second).UTC().Format(http.TimeFormat))(w, r)
			}, ok},
			[]time.Duration{9400 * ms},
			nil,
		},
		{"a reset connection is tried again", call.Policy{}, []http.HandlerFunc{reset, ok}, []time.Duration{400 * ms}, nil},
		{
			"a try without an answer ends after its own timeout",
			call.Policy{Timeout: 2 * time.Second},
			[]http.HandlerFunc{hang, ok},
			[]time.Duration{2400 * ms},
			nil,
		},
		{"403 is final", call.Policy{}, []http.HandlerFunc{status(403, "Forbidden", "no")}, nil, apierrors.IsForbidden},
		{"404 is final", call.Policy{}, []http.HandlerFunc{status(404, "NotFound", "no")}, nil, apierrors.IsNotFound},
		{
			"a page of a proxy is no object",
			call.Policy{},
			[]http.HandlerFunc{withHeader(func(w http.ResponseWriter, _ *http.Request) {
				w.Write([]byte("<html>log in</html>"))
			}, "Content-Type", "text/html")},
			nil, isProtocol,
		},
		{
			"nor is a body that is not json",
			call.Policy{},
			[]http.HandlerFunc{answer(200, `{"kind":`)},
			nil,
			isProtocol,
		},
		{
			"repeated timeouts end in a timeout error that is not the caller's",
			call.Policy{Timeout: time.Second, Retries: 1},
			[]http.HandlerFunc{hang},
			[]time.Duration{1400 * ms},
			func(err error) bool {
				return errors.Is(err, call.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded)
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				a, err := call.Do(t.Context(), b.client, get(), tc.policy)
				if tc.err == nil {
					if err != nil || string(a.Raw) != web || a.Tries != len(tc.waits)+1 {
						t.Errorf("got %+v, %v; want the object after %d tries", a, err, len(tc.waits)+1)
					}
				} else if !tc.err(err) {
					t.Errorf("unexpected error: %v", err)
				}
				if diff := cmp.Diff(tc.waits, b.waits()); diff != "" {
					t.Errorf("times between tries (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRefusedConnectionIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, answer(201, web))
		tries := 0
		b.pipe.down = func() error {
			if tries++; tries < 3 {
				return syscall.ECONNREFUSED
			}
			return nil
		}
		// If no server accepted the connection, not even an unnamed create is in doubt.
		r := call.Request{
			Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
			Body: []byte(`{"metadata":{"generateName":"x-"}}`),
		}
		if a, err := call.Do(t.Context(), b.client, r, call.Policy{}); err != nil || a.Tries != 3 {
			t.Errorf("got %+v, %v; want success at the third try", a, err)
		}
	})
}

func TestAbsence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		reply  http.HandlerFunc
		ok     bool
	}{
		{"the server says that the object does not exist", status(404, "NotFound", `configmaps "web" not found`), true},
		{"no API serves the resource", withHeader(answer(404, "404 page not found\n"), "Content-Type", "text/plain"), false},
		{"a proxy has its own 404 page", withHeader(answer(404, "<html>"), "Content-Type", "text/html"), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, call.Options{}, tc.reply)
			r := get()
			r.NotFoundOK = true
			a, err := call.Do(t.Context(), b.client, r, call.Policy{})
			if a != nil || (err == nil) != tc.ok {
				t.Errorf("got %v, %v; absence accepted: want %v", a, err, tc.ok)
			}
		})
	}
}

func TestCancellation(t *testing.T) {
	t.Parallel()
	preempted := errors.New("preempted")
	t.Run("a request in flight is cancelled on the wire", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			gone := make(chan time.Time, 1)
			b := newBench(t, call.Options{}, func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				gone <- time.Now()
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(preempted) })
			begun := time.Now()
			_, err := call.Do(ctx, b.client, call.Request{
				Verb: call.VerbUpdate, Resource: configMaps, Name: "web", Namespace: "a", Body: []byte(web),
			}, call.Policy{})
			if !errors.Is(err, preempted) || !errors.Is(err, call.ErrOutcomeUnknown) {
				t.Errorf("got %v, want the cause and an unknown outcome", err)
			}
			if at := <-gone; at.Sub(begun) != 3*time.Second {
				t.Errorf("the server saw the cancellation after %v, want 3s", at.Sub(begun))
			}
		})
	})
	t.Run("nothing is sent once the context has ended", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, call.Options{}, answer(200, web))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(preempted)
		_, err := call.Do(ctx, b.client, get(), call.Policy{})
		if !errors.Is(err, preempted) || len(b.seen()) != 0 {
			t.Errorf("got %v after %d requests, want the cause and none", err, len(b.seen()))
		}
	})
	t.Run("the wait between tries ends at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{}, withHeader(status(429, "TooManyRequests", "x"), "Retry-After", "100"))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(preempted) })
			begun := time.Now()
			_, err := call.Do(ctx, b.client, get(), call.Policy{})
			if !errors.Is(err, preempted) || !apierrors.IsTooManyRequests(err) || time.Since(begun) != time.Second {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	})
	t.Run("a deadline before the next try ends the call at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{}, withHeader(status(429, "TooManyRequests", "x"), "Retry-After", "100"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			_, err := call.Do(ctx, b.client, get(), call.Policy{})
			if !errors.Is(err, context.DeadlineExceeded) || !apierrors.IsTooManyRequests(err) || time.Since(begun) != 0 {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	})
	t.Run("nor does a timeout of the HTTP client that is shared with others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{HTTPClient: &http.Client{Timeout: time.Second}},
				func(w http.ResponseWriter, r *http.Request) {
					<-time.After(8 * time.Second) // fake time
					answer(200, web)(w, r)
				})
			if _, err := call.Do(t.Context(), b.client, get(), call.Policy{Retries: -1}); err != nil {
				t.Errorf("a call with time left failed: %v", err)
			}
		})
	})
	t.Run("a canceled try is reported", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			b := newBench(t, call.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
				status(503, "ServiceUnavailable", "x"), hang)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(preempted) })
			_, err := call.Do(ctx, b.client, get(), call.Policy{})
			e, ok := errors.AsType[*call.Error](err)
			if !ok || len(e.Tries) != 2 || e.Tries[1].Reason != "cancelled" || e.Tries[1].Took != 2600*ms {
				t.Errorf("got %+v (%v), want a second try that was cancelled", e, err)
			}
			if n := strings.Count(log.String(), "request failed"); n != 2 {
				t.Errorf("%d lines for 2 tries:\n%s", n, &log)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings: that the caller has changed his mind is none:\n%s", n, &log)
			}
		})
	})
	t.Run("the last try of a call is reported only by its error", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for reported, want := range map[bool]string{false: "WARN WARN", true: "WARN DEBUG"} {
				var log bytes.Buffer
				b := newBench(t, call.Options{
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				}, status(503, "ServiceUnavailable", "x"), status(403, "Forbidden", "x"))
				if _, err := call.Do(t.Context(), b.client, get(), call.Policy{Reported: reported}); err == nil {
					t.Error("no error")
				}
				var levels []string
				for _, line := range strings.Split(log.String(), "level=")[1:] {
					levels = append(levels, strings.Fields(line)[0])
				}
				if got := strings.Join(levels, " "); got != want {
					t.Errorf("reported %v: %s, want %s:\n%s", reported, got, want, &log)
				}
			}
		})
	})
	t.Run("one call's timeout does not touch another call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			slow := func(w http.ResponseWriter, r *http.Request) {
				<-time.After(8 * time.Second) // fake time
				answer(200, web)(w, r)
			}
			b := newBench(t, call.Options{}, hang, slow)
			if _, err := call.Do(t.Context(), b.client, get(), call.Policy{Timeout: time.Second, Retries: -1}); !errors.Is(err,
				call.ErrTimeout) {
				t.Errorf("got %v, want a timeout", err)
			}
			if _, err := call.Do(t.Context(), b.client, get(), call.Policy{Retries: -1}); err != nil {
				t.Errorf("a call with time left failed: %v", err)
			}
		})
	})
}

func TestOnConflict(t *testing.T) {
	t.Parallel()
	update := func(on func(context.Context, call.Conflict) (call.Request, error)) call.Request {
		return call.Request{
			Verb: call.VerbUpdate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web",
			Body: []byte(web), OnConflict: on,
		}
	}
	refused := status(409, "Conflict", "the object has been modified")
	t.Run("the next request is sent after a back-off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{}, refused, refused, answer(200, web))
			var counts []int
			a, err := call.Do(t.Context(), b.client, update(func(_ context.Context, c call.Conflict) (call.Request, error) {
				counts = append(counts, c.Count)
				next := c.Request
				next.Body = []byte(`{"metadata":{"name":"web","resourceVersion":"9"}}`)
				return next, nil
			}), call.Policy{})
			if err != nil || a.Tries != 3 {
				t.Fatalf("got %+v, %v", a, err)
			}
			if diff := cmp.Diff([]int{1, 2}, counts); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]time.Duration{400 * ms, 800 * ms}, b.waits()); diff != "" {
				t.Error(diff)
			}
			if got := b.seen()[2]; got !=
				`PUT /api/v1/namespaces/a/configmaps/web {"metadata":{"name":"web","resourceVersion":"9"}}` {
				t.Errorf("third request is %q", got)
			}
		})
	})
	t.Run("it is bounded and ends in the last conflict", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{}, refused)
			_, err := call.Do(t.Context(), b.client,
				update(func(_ context.Context, c call.Conflict) (call.Request, error) { return c.Request, nil }),
				call.Policy{Conflicts: 3})
			if !apierrors.IsConflict(err) || len(b.seen()) != 4 {
				t.Errorf("after %d requests: %v", len(b.seen()), err)
			}
		})
	})
	t.Run("an error and a panic of the function end the call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, call.Options{}, refused)
			gone := errors.New("gone")
			_, err := call.Do(t.Context(), b.client,
				update(func(context.Context, call.Conflict) (call.Request, error) { return call.Request{}, gone }), call.Policy{})
			if !errors.Is(err, gone) || !apierrors.IsConflict(err) {
				t.Errorf("got %v, want both the conflict and the error of the function", err)
			}
			_, err = call.Do(t.Context(), b.client,
				update(func(context.Context, call.Conflict) (call.Request, error) { panic("boom") }), call.Policy{})
			if err == nil || !apierrors.IsConflict(err) {
				t.Errorf("got %v, want the panic as an error", err)
			}
		})
	})
}

func TestTypedAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, call.Options{}, answer(200, web))
	a, err := call.Do(t.Context(), b.client, get(), call.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var cm corev1.ConfigMap
	if err := a.Into(&cm); err != nil || cm.Data["k"] != "v" || cm.ResourceVersion != "7" {
		t.Errorf("got %+v, %v", cm, err)
	}
}

func isProtocol(err error) bool {
	return err != nil && strings.Contains(err.Error(), "not an answer of a Kubernetes API server")
}

func isInvalid(err error) bool { return err != nil && strings.Contains(err.Error(), "invalid request") }
