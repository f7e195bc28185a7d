package httpapi

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// TestALimitNamesItsBound: a refusal tells whether the caller, the namespace or the server is at its bound. It is
// counted, and tells when to try again.
func TestALimitNamesItsBound(t *testing.T) {
	t.Parallel()
	type refusal struct {
		Status, After int
		Text          string
	}
	none, one := fair.Party{}, fair.Party{Group: "ns", Member: "one"}
	for _, c := range []struct {
		reason  string
		holders []fair.Party
		next    fair.Party
		want    refusal
		scope   string
	}{
		{"a caller alone gets a third", []fair.Party{one}, one, refusal{
			http.StatusTooManyRequests, 5, "Too many event streams: this caller has as many at a time as it may have: " +
				"try again later, or poll with GET",
		}, "caller"},
		{"a namespace alone gets half", []fair.Party{{Group: "ns"}, {Group: "ns"}}, fair.Party{Group: "ns"}, refusal{
			http.StatusTooManyRequests, 5, "Too many event streams: this namespace has as many at a time as it may " +
				"have: try again later, or poll with GET",
		}, "namespace"},
		{"the server is full", []fair.Party{none, none, none}, none, refusal{
			http.StatusServiceUnavailable, 5, "Too many event streams: this server has as many at a time as it can: " +
				"try again later, or poll with GET",
		}, fair.ScopeAll},
	} {
		l := newLimits(Options{MaxInFlight: 3, MaxStreams: 3, MaxCallbacks: 3})
		var leaves []func()
		for _, holder := range c.holders {
			leave, err := l.streams.enter(t.Context(), holder)
			if err != nil {
				t.Fatalf("%s: a holder is refused: %v", c.reason, err)
			}
			leaves = append(leaves, leave)
		}
		_, err := l.streams.enter(t.Context(), c.next)
		var p *Problem
		if !errors.As(err, &p) {
			t.Errorf("%s: got %v, want a problem", c.reason, err)
			continue
		}
		if diff := cmp.Diff(c.want, refusal{p.Status, p.after, p.Error()}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
		if n := testutil.ToFloat64(l.refused.WithLabelValues("streams", c.scope)); n != 1 {
			t.Errorf("%s: %v refusals are counted, want 1", c.reason, n)
		}
		leaves[0]()
		if leave, err := l.streams.enter(t.Context(), c.next); err != nil {
			t.Errorf("%s: refused although a slot is free again: %v", c.reason, err)
		} else {
			leave()
		}
	}
}
