package authority_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l     = authority.Lifetimes{
		Authority: 365 * 24 * time.Hour, Leaf: 30 * 24 * time.Hour, Overlap: 90 * 24 * time.Hour,
		Settle: 10 * time.Minute,
	}
)

func made(t testing.TB, at time.Time) authority.Authority {
	t.Helper()
	a, err := authority.New(at, "test", l.Authority)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func verify(bundle []byte, leaf *x509.Certificate, host string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at})
	return err
}

// checked has the verified chains of certificates by bundle. Signatures stay valid, but validity periods end.
type checked map[[2]string][]*x509.Certificate

// verify is [verify] of the host "hook" that checks the signatures of a pair once.
func (c checked) verify(bundle []byte, leaf *x509.Certificate, at time.Time) error {
	pair := [2]string{string(bundle), string(leaf.Raw)}
	chain := c[pair]
	for _, cert := range chain {
		if at.Before(cert.NotBefore) || at.After(cert.NotAfter) {
			chain = nil
		}
	}
	if chain != nil {
		return nil
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "hook", CurrentTime: at})
	if err == nil {
		c[pair] = chains[0]
	}
	return err
}

func TestIssue(t *testing.T) {
	t.Parallel()
	a := made(t, began)
	for _, tc := range []struct {
		reason string
		at     time.Time
		host   string
		good   bool
	}{
		{"a name", began, "hook.ns.svc", true},
		{"an address", began, "127.0.0.1", true},
		{"a clock that is behind", began.Add(-4 * time.Minute), "hook.ns.svc", true},
		{"a clock that is far behind", began.Add(-time.Hour), "hook.ns.svc", false},
		{"another name", began, "other.ns.svc", false},
		{"just before its end", began.Add(l.Leaf - time.Second), "hook.ns.svc", true},
		{"after its end", began.Add(l.Leaf + time.Second), "hook.ns.svc", false},
	} {
		cert, err := a.Issue(began, []string{"hook.ns.svc", "127.0.0.1"}, l.Leaf)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(authority.Set{a}.Bundle(), cert.Leaf, tc.host, tc.at); (err == nil) != tc.good {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
	late := began.Add(l.Authority - time.Hour)
	cert, err := a.Issue(late, []string{"hook.ns.svc"}, l.Leaf)
	if err != nil || cert.Leaf.NotAfter.After(a.Certificate.NotAfter) {
		t.Errorf("a certificate outlives its authority: %v, %v", cert, err)
	}
	if _, err := a.Issue(began.Add(l.Authority+time.Hour), []string{"hook.ns.svc"}, l.Leaf); err == nil {
		t.Error("an authority that has ended issues a certificate")
	}
	if _, err := a.Trusted().Issue(began, []string{"hook.ns.svc"}, l.Leaf); err == nil {
		t.Error("an authority without a key issues a certificate")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	a, b := made(t, began), made(t, began.Add(time.Hour))
	both, err := authority.Set{a, b.Trusted()}.Encode(map[string][]byte{"note": []byte("mine")})
	if err != nil {
		t.Fatal(err)
	}
	if len(both) != 4 || string(both["note"]) != "mine" {
		t.Fatalf("got %v", slices.Sorted(maps.Keys(both)))
	}
	entry := func(a authority.Authority, suffix string) string { return "ca-" + a.ID() + suffix }
	other, err := authority.Set{b}.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Issue(began, []string{"x"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	asPEM := authority.Set{{Certificate: leaf.Leaf}}.Bundle()
	for _, tc := range []struct {
		reason string
		change func(map[string][]byte)
		want   int    // authorities
		entry  string // of the reported error
		says   string
	}{
		{"as written", func(map[string][]byte) {}, 2, "", ""},
		{"empty", func(d map[string][]byte) { clear(d) }, 0, "", ""},
		{"garbage", func(d map[string][]byte) { d[entry(a, ".crt")] = []byte("junk") }, 1, entry(a, ".crt"), "no PEM block"},
		{"garbage in a block", func(d map[string][]byte) {
			d[entry(a, ".crt")] = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, 1, entry(a, ".crt"), "x509"},
		{
			"no authority", func(d map[string][]byte) { d[entry(a, ".crt")] = asPEM }, 1, entry(a, ".crt"),
			"not that of an authority",
		},
		{"a broken key", func(d map[string][]byte) { d[entry(a, ".key")] = []byte("junk") }, 1, entry(a, ".crt"), "its key"},
		{
			"another's key", func(d map[string][]byte) { d[entry(a, ".key")] = other[entry(b, ".key")] },
			1, entry(a, ".crt"), "another certificate",
		},
		{"a key alone", func(d map[string][]byte) { delete(d, entry(a, ".crt")) }, 1, entry(a, ".key"), "no certificate"},
		{"no key", func(d map[string][]byte) { delete(d, entry(a, ".key")) }, 2, "", ""},
	} {
		data := maps.Clone(both)
		tc.change(data)
		set, err := authority.Parse(data)
		if len(set) != tc.want {
			t.Errorf("%s: %d authorities, want %d", tc.reason, len(set), tc.want)
		}
		var broken *authority.EntryError
		if (err != nil) != (tc.entry != "") || err != nil && (!errors.As(err, &broken) || broken.Entry != tc.entry ||
			!strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	a := made(t, began)
	for _, tc := range []struct {
		reason string
		set    authority.Set
		at     time.Time
		want   authority.Plan
		kept   int
	}{
		{"nothing", nil, began, authority.Plan{Stage: true, Alone: true}, 0},
		{"a new one", authority.Set{a}, began, authority.Plan{}, 1},
		{"before the overlap", authority.Set{a}, began.Add(l.Authority - l.Overlap - time.Hour), authority.Plan{}, 1},
		{"in the overlap", authority.Set{a}, began.Add(l.Authority - l.Overlap), authority.Plan{Stage: true}, 1},
		{"at the end", authority.Set{a}, began.Add(l.Authority + time.Hour), authority.Plan{Stage: true, Alone: true}, 0},
		{"trusted only", authority.Set{a.Trusted()}, began, authority.Plan{Stage: true, Alone: true}, 1},
		{
			"followed",
			authority.Set{a, made(t, began.Add(l.Authority-l.Overlap))},
			began.Add(l.Authority - time.Hour),
			authority.Plan{},
			2,
		},
	} {
		got := tc.set.Plan(tc.at, l)
		if got.Stage != tc.want.Stage || got.Alone != tc.want.Alone || len(got.Keep) != tc.kept {
			t.Errorf("%s: %+v", tc.reason, got)
		}
	}
}

// TestRotation runs replicas over the life of an authority, with the Secret and the configuration as the API server
// stores them. A caller with an older configuration trusts the certificate of each replica at any time.
func TestRotation(t *testing.T) {
	t.Parallel()
	l := authority.Lifetimes{
		Authority: 50 * time.Hour, Leaf: 10 * time.Hour, Overlap: 20 * time.Hour, Settle: 2 * time.Hour,
	}
	rapid.Check(t, func(t *rapid.T) {
		type replica struct {
			serves *tls.Certificate
			since  map[string]time.Time
		}
		var (
			now     = began
			secret  authority.Set
			bundle  []byte
			history []struct {
				at     time.Time
				bundle []byte
			}
			replicas = make([]replica, rapid.IntRange(1, 4).Draw(t, "replicas"))
			checks   = checked{}
			signers  = map[string]bool{}
		)
		look := func(r *replica) {
			if plan := secret.Plan(now, l); plan.Stage || len(plan.Keep) < len(secret) {
				secret = plan.Keep
				if plan.Stage {
					a, err := authority.New(now, "test", l.Authority)
					if err != nil {
						t.Fatal(err)
					}
					secret = secret.With(a)
				}
			}
			if !bytes.Equal(bundle, secret.Bundle()) {
				bundle = secret.Bundle()
				history = append(history, struct {
					at     time.Time
					bundle []byte
				}{now, bundle})
			}
			since := map[string]time.Time{}
			for _, a := range secret {
				since[a.ID()] = now
				if at, ok := r.since[a.ID()]; ok {
					since[a.ID()] = at
				}
			}
			r.since = since
			signer, settled, ok := secret.Signer(now, l, since)
			if !ok {
				t.Fatal("there is no authority to sign")
			}
			var leaf *x509.Certificate
			if r.serves != nil {
				leaf = r.serves.Leaf
			}
			if secret.Renew(now, leaf, signer, settled) {
				var err error
				if r.serves, err = signer.Issue(now, []string{"hook"}, l.Leaf); err != nil {
					t.Fatal(err)
				}
				signers[signer.ID()] = true
			}
		}
		for range 100 {
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
			for i := range replicas { // each at least once within the bound of Look
				look(&replicas[i])
			}
			if rapid.IntRange(0, 20).Draw(t, "restarts") == 0 {
				replicas[0] = replica{}
				look(&replicas[0])
			}
			behind := now.Add(-time.Duration(rapid.IntRange(0, 110).Draw(t, "behind")) * time.Minute)
			known := history[0].bundle
			for _, h := range history {
				if !h.at.After(behind) {
					known = h.bundle
				}
			}
			for i, r := range replicas {
				if err := checks.verify(known, r.serves.Leaf, now); err != nil {
					t.Fatalf("after %v replica %d serves an untrusted certificate: %v", now.Sub(began), i, err)
				}
			}
		}
		if now.Sub(began) > l.Authority && len(signers) < 2 {
			t.Errorf("%d authorities signed in %v", len(signers), now.Sub(began))
		}
		if n := len(secret); n > 3 {
			t.Errorf("%d authorities are kept", n)
		}
	})
}

func TestSigner(t *testing.T) {
	t.Parallel()
	old, next := made(t, began), made(t, began.Add(l.Authority-l.Overlap))
	at := began.Add(l.Authority - l.Overlap + time.Hour)
	known := map[string]time.Time{old.ID(): began, next.ID(): at}
	for _, tc := range []struct {
		reason  string
		set     authority.Set
		since   map[string]time.Time
		at      time.Time
		want    authority.Authority
		settled bool
	}{
		{"the only one", authority.Set{old}, nil, began, old, true},
		{"a new authority that was just published", authority.Set{old, next}, known, at, old, true},
		{"no state, as after a restart", authority.Set{old, next}, nil, at, old, false},
		{"a new authority after its settle time", authority.Set{old, next}, known, at.Add(l.Settle), next, true},
		{"the old one ends soon", authority.Set{old, next}, nil, began.Add(l.Authority - time.Minute), next, false},
		{"the old one has no key", authority.Set{old.Trusted(), next}, known, at, next, false},
	} {
		got, settled, ok := tc.set.Signer(tc.at, l, tc.since)
		if !ok || got.ID() != tc.want.ID() || settled != tc.settled {
			t.Errorf("%s: got %s, settled %v, ok %v", tc.reason, got.ID(), settled, ok)
		}
	}
	if _, _, ok := (authority.Set{old.Trusted()}).Signer(at, l, known); ok {
		t.Error("an authority without a key signs")
	}
}

// A lost Secret is restored from the bundle that the API server trusts, and the old certificates stay valid.
func TestTakenFromTheBundle(t *testing.T) {
	t.Parallel()
	a := made(t, began)
	old, err := a.Issue(began, []string{"hook"}, l.Leaf)
	if err != nil {
		t.Fatal(err)
	}
	now := began.Add(time.Hour)
	b := made(t, now)
	var repaired authority.Set
	for _, known := range authority.FromBundle(append([]byte("junk\n"), authority.Set{a}.Bundle()...)) {
		repaired = repaired.With(known.Trusted())
	}
	repaired = repaired.With(b)
	since := map[string]time.Time{a.ID(): now, b.ID(): now}
	signer, settled, ok := repaired.Signer(now, l, since)
	if !ok || settled || signer.ID() != b.ID() {
		t.Fatalf("signer %v, settled %v", signer.ID(), settled)
	}
	if repaired.Renew(now, old.Leaf, signer, settled) {
		t.Error("a trusted certificate is replaced before the new authority has settled")
	}
	now = now.Add(l.Settle)
	if signer, settled, _ = repaired.Signer(now, l, since); !settled || !repaired.Renew(now, old.Leaf, signer, settled) {
		t.Error("the new authority does not sign")
	}
	if err := verify(repaired.Bundle(), old.Leaf, "hook", now); err != nil {
		t.Error(err)
	}
	if (authority.Set{b}).Renew(now, old.Leaf, b, true) == false {
		t.Error("an untrusted certificate is kept")
	}
}

func FuzzParse(f *testing.F) {
	set := authority.Set{made(f, began)}
	data, err := set.Encode(nil)
	if err != nil {
		f.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(data))
	f.Add(data[names[0]], data[names[1]])
	f.Add([]byte("junk"), []byte(nil))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		set, err := authority.Parse(map[string][]byte{"ca-x.crt": cert, "ca-x.key": key})
		if (err == nil) != (len(set) == 1) {
			t.Fatalf("%d authorities, and %v", len(set), err)
		}
		authority.FromBundle(cert)
	})
}
