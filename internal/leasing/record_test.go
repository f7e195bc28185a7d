package leasing_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

var resource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

func edit(t *testing.T, s *apiserver.Server, fn func(spec map[string]any)) {
	t.Helper()
	_, err := s.Change(resource, "a", "m", func(u *unstructured.Unstructured) {
		spec, _, _ := unstructured.NestedMap(u.Object, "spec")
		if spec == nil {
			spec = map[string]any{}
		}
		fn(spec)
		u.Object["spec"] = spec
	})
	check(t, err)
}

// named returns a change of the holder.
func named(holder string) func(*leasing.Lease) {
	return func(l *leasing.Lease) { l.Spec.HolderIdentity = &holder }
}

// TestLostResponse: a renewal whose response was lost is read back, and the next renewal replaces it.
func TestLostResponse(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server, _ *leasing.Client) {
		var lose atomic.Bool
		cfg := disturb.Config(s.Config(), func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPut && lose.Swap(false) {
				return disturb.AnswerLost.RoundTrip(r, next, nil)
			}
			return next.RoundTrip(r)
		})
		c, err := leasing.NewClient(cfg, "a", time.Minute)
		check(t, err)
		r := leasing.Record{Client: c, Name: "m"}
		check(t, r.Create(t.Context(), named("one")))
		lose.Store(true)
		if err := r.Renew(t.Context(), named("two")); !errors.Is(err, disturb.ErrLost) || leasing.Holder(r.Last()) != "one" {
			t.Errorf("%q with %v", leasing.Holder(r.Last()), err)
		}
		if err := r.Renew(t.Context(), named("three")); !errors.Is(err, leasing.ErrConflict) ||
			leasing.Holder(r.Last()) != "two" {
			t.Errorf("the lost renewal was not read back: %q with %v", leasing.Holder(r.Last()), err)
		}
		check(t, r.Renew(t.Context(), named("three")))
	})
}

// TestDeleted: neither a deleted Lease nor another one of its name is renewed.
func TestDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		r, other := leasing.Record{Client: c, Name: "m"}, leasing.Record{Client: c, Name: "m"}
		check(t, r.Create(t.Context(), named("one")))
		check(t, s.Remove(resource, "a", "m"))
		if err := r.Renew(t.Context(), named("one")); !errors.Is(err, leasing.ErrDeleted) {
			t.Errorf("a deleted Lease: %v", err)
		}
		check(t, other.Create(t.Context(), named("other")))
		if err := r.Renew(t.Context(), named("one")); !errors.Is(err, leasing.ErrDeleted) ||
			leasing.Holder(r.Last()) != "one" {
			t.Errorf("another Lease: %v", err)
		}
	})
}

// claim returns a claim of one identity.
func claim(c *leasing.Client, identity string) *leasing.Claim {
	return &leasing.Claim{
		Record: leasing.Record{Client: c, Name: "m"}, Identity: identity, Duration: 14500 * time.Millisecond,
	}
}

func take(t *testing.T, c *leasing.Claim) {
	t.Helper()
	if _, err := c.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, c *leasing.Claim) {
	t.Helper()
	if _, err := c.Take(t.Context()); !errors.Is(err, leasing.ErrHeld) {
		t.Fatalf("%s takes the Lease: %v", c.Identity, err)
	}
}

// TestClaim: a Lease changes hands when its holder releases it, or fails to renew it for its duration. The observer
// measures the duration by its own clock from its first look.
func TestClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		one, two, three := claim(c, "one"), claim(c, "two"), claim(c, "three")
		take(t, one)
		if spec := one.Last().Spec; *spec.LeaseDurationSeconds != 15 || *spec.LeaseTransitions != 0 ||
			spec.AcquireTime == nil {
			t.Errorf("the Lease was created as %v", spec)
		}
		refused(t, two)
		testbed.Settle(14 * time.Second)
		if refused(t, two); two.Unrenewed() != 14*time.Second {
			t.Errorf("the Lease has not been renewed for %v", two.Unrenewed())
		}
		check(t, one.Renew(t.Context(), leasing.Clock{}.Stamp()))
		if refused(t, two); two.Unrenewed() != 0 {
			t.Errorf("the Lease was renewed %v ago", two.Unrenewed())
		}
		testbed.Settle(14 * time.Second)
		refused(t, two)
		testbed.Settle(time.Second)
		refused(t, three) // three sees the Lease for the first time
		take(t, two)
		if spec := two.Last().Spec; *spec.LeaseTransitions != 1 || two.Unrenewed() != 0 {
			t.Errorf("the Lease was taken as %v, not renewed for %v", spec, two.Unrenewed())
		}
		if held, err := one.Holds(t.Context()); held || err != nil {
			t.Errorf("one holds the Lease: %t, %v", held, err)
		}
		if held, err := two.Holds(t.Context()); !held || err != nil {
			t.Errorf("two holds the Lease: %t, %v", held, err)
		}
		check(t, two.Release(t.Context()))
		take(t, three)
		if err := two.Release(t.Context()); !errors.Is(err, leasing.ErrConflict) {
			t.Errorf("two frees the Lease of three: %v", err)
		}
		edit(t, s, func(spec map[string]any) { delete(spec, "leaseDurationSeconds") })
		refused(t, one) // without a duration, that of the observer counts
		testbed.Settle(14500 * time.Millisecond)
		take(t, one)
	})
}

// TestClaimRenew: a hold survives edits and a deletion, but not the hold of another identity.
func TestClaimRenew(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		one := claim(c, "one")
		one.Annotations = map[string]string{"at": "one"}
		renew := func() error { return one.Renew(t.Context(), leasing.Clock{}.Stamp()) }
		take(t, one)
		edit(t, s, func(spec map[string]any) { spec["leaseDurationSeconds"] = int64(3) })
		if err := renew(); !errors.Is(err, leasing.ErrConflict) {
			t.Errorf("after an edit: %v", err)
		}
		check(t, renew())
		check(t, s.Remove(resource, "a", "m"))
		check(t, renew())
		if got := one.Last(); got.Annotations["at"] != "one" || *got.Spec.LeaseDurationSeconds != 15 {
			t.Errorf("the Lease was created as %v", got)
		}
		for _, holder := range []string{"other", ""} {
			edit(t, s, func(spec map[string]any) { spec["holderIdentity"] = holder })
			if err := renew(); !errors.Is(err, leasing.ErrHeld) {
				t.Errorf("held by %q: %v", holder, err)
			}
			edit(t, s, func(spec map[string]any) { spec["holderIdentity"] = "" })
			take(t, one)
		}
		check(t, s.Remove(resource, "a", "m"))
		take(t, claim(c, "other"))
		if err := renew(); !errors.Is(err, leasing.ErrHeld) {
			t.Errorf("deleted, and created by another: %v", err)
		}
	})
}
