package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
)

// TestCertificate: the certificate is renewed when it is due. A new authority signs only after Settle, so that every
// API server knows it.
func TestCertificate(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l := authority.Lifetimes{Authority: 100 * time.Hour, Leaf: 9 * time.Hour, Overlap: 30 * time.Hour, Settle: time.Hour}
	c := &certificate{now: func() time.Time { return now }}
	if c.leaf() != nil || c.err() != nil {
		t.Errorf("before the first one: %v, %v", c.leaf(), c.err())
	}
	first, err := authority.New(now, "test", l.Authority)
	if err != nil {
		t.Fatal(err)
	}
	set := authority.Set{}.With(first)
	renew := func(set authority.Set, want bool, signer string) {
		t.Helper()
		by, renewed, err := c.renew(set, l, []string{"a.example.com"})
		if err != nil || renewed != want || renewed && by != signer {
			t.Fatalf("renewed: %v by %s, %v; want %v by %s", renewed, by, err, want, signer)
		}
	}
	renew(set, true, first.ID())
	renew(set, false, "")
	if leaf := c.leaf(); !slices.Contains(leaf.DNSNames, "a.example.com") || c.err() != nil {
		t.Errorf("it is for %q, %v", leaf.DNSNames, c.err())
	}
	served, err := c.config().GetCertificate(nil)
	if err != nil || served.Leaf != c.leaf() {
		t.Errorf("another certificate is served: %v", err)
	}
	now = now.Add(75 * time.Hour) // in the overlap; the certificate has expired
	if c.err() == nil {
		t.Error("an expired certificate is no error")
	}
	second, err := authority.New(now, "test", l.Authority)
	if err != nil {
		t.Fatal(err)
	}
	set = set.With(second)
	renew(set, true, first.ID())
	now = now.Add(l.Settle + time.Second)
	renew(set, true, second.ID())
	renew(authority.Set{}.With(second), false, "")
	if _, _, err := c.renew(authority.Set{}, l, nil); err == nil {
		t.Error("a certificate is issued without an authority")
	}
}
