package reconcile

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestReporter: a failure is logged once with its class and passed to OnFailure, whose panic is contained. A success is
// not logged.
func TestReporter(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	panicked := &PanicError{Value: "boom", Stack: []byte("the stack")}
	for _, tc := range []struct {
		reason string
		end    completion
		class  Class    // of the failure; "": none
		want   []string // texts in the log; nil: the log is empty
		panics float64
	}{
		{"success", completion{}, "", nil, 0},
		{
			"failure",
			completion{err: failed},
			Retryable,
			[]string{"level=ERROR", "class=retryable", "attempts=2", "failed"},
			0,
		},
		{"conflict", completion{err: failed}, Conflict, []string{"level=INFO", "class=conflict"}, 0},
		{"panic", completion{err: panicked}, Retryable, []string{"boom", `stack="the stack"`}, 1},
		{
			"panic after it was stopped",
			completion{err: &abortError{ErrPreempted, panicked}},
			"",
			[]string{"a reconciliation that was stopped panicked", "boom"},
			1,
		},
		{"a negative time", completion{res: After(-time.Second)}, "", []string{"after a negative duration", "after=-1s"}, 0},
		{
			"an error and After",
			completion{res: After(time.Minute), err: failed},
			Stopped,
			[]string{"after=1m0s", "afterHonoured=false"},
			0,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			var got []Failure
			p := &reporter{
				log: slog.New(slog.NewTextHandler(&log, nil)), panics: newMetrics("gateways").panics, main: &watch{},
				onFailure: func(f Failure) { got = append(got, f); panic("in OnFailure") },
			}
			r := &reconciliation{key: key("a", 1)}
			var v verdict
			if tc.class != "" {
				v.failed = &Failure{
					Controller: "gateways", Key: r.key, Class: tc.class, Attempts: 2, Err: &Error{"gateways", r.key, tc.end.err},
				}
			}
			p.report(r, tc.end, v)
			for _, want := range tc.want {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, &log)
				}
			}
			if len(tc.want) == 0 && log.Len() > 0 {
				t.Errorf("the log says %s", &log)
			}
			if n := testutil.ToFloat64(p.panics); n != tc.panics {
				t.Errorf("%v panics are counted", n)
			}
			if want := tc.class != ""; (len(got) == 1) != want || strings.Contains(log.String(), "OnFailure panicked") != want {
				t.Errorf("OnFailure was called with %v; the log says %s", got, &log)
			}
		})
	}
}
