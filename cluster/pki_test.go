package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCredentialsAreKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		change  func(t *testing.T, p pki)
		renewed []string
	}{
		"Nothing": {
			reason: "valid files stay, so that kubeconfigs stay valid",
			change: func(*testing.T, pki) {},
		},
		"ServingExpires": {
			reason:  "a certificate that expires soon is renewed by the same CA",
			change:  func(t *testing.T, p pki) { expire(t, p) },
			renewed: []string{"apiserver.crt", "apiserver.key"},
		},
		"AuthorityLost": {
			reason:  "without the CA's key a new CA is made, and the server gets a certificate of it",
			change:  func(t *testing.T, p pki) { remove(t, p.caKey()) },
			renewed: []string{"ca.crt", "ca.key", "apiserver.crt", "apiserver.key"},
		},
		"TokenLost": {
			reason:  "token and token file belong together",
			change:  func(t *testing.T, p pki) { remove(t, p.token()) },
			renewed: []string{"token", "tokens.csv"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pki{filepath.Join(t.TempDir(), "pki")}
			if err := p.ensure(); err != nil {
				t.Fatal(err)
			}
			before := contents(t, p)
			tc.change(t, p)
			if err := p.ensure(); err != nil {
				t.Fatal(err)
			}
			after := contents(t, p)
			renewed := map[string]bool{}
			for _, name := range tc.renewed {
				renewed[name] = true
			}
			for name := range before {
				if got := !bytes.Equal(before[name], after[name]); got != renewed[name] {
					t.Errorf("%s: %s renewed: %t, want %t", tc.reason, name, got, renewed[name])
				}
			}
			ca, err := readCert(p.caCert())
			if err != nil {
				t.Fatal(err)
			}
			serving, err := readCert(p.servingCert())
			if err != nil {
				t.Fatal(err)
			}
			if err := serving.CheckSignatureFrom(ca); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if serving.NotAfter.Before(time.Now().Add(renewBefore)) {
				t.Errorf("%s: the serving certificate ends at %s", tc.reason, serving.NotAfter)
			}
		})
	}
}

// expire replaces the serving certificate with one that expires soon.
func expire(t *testing.T, p pki) {
	t.Helper()
	if err := p.issueServing(renewBefore / 2); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, p pki) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(p.path(e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
