package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// issue makes a certificate for loopback with its key, as PEM. The zero times: good for an hour from now.
func issue(t *testing.T, name string, from, until time.Time) (cert, key []byte) {
	t.Helper()
	if from.IsZero() {
		from, until = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// journal is a log that can be read while it is written.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(p)
}

// take returns what was written since it was called last.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.all.Reset()
	return j.all.String()
}

func put(t *testing.T, dir string, cert, key []byte) {
	t.Helper()
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateChanges plays what happens to the files of a mounted Secret and of others.
func TestCertificateChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mount := func(name string, cert, key []byte) { // as the kubelet does
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, name), cert, key)
			if err := os.Symlink(name, filepath.Join(dir, "next")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		cert, key := issue(t, "first", time.Time{}, time.Time{})
		mount("one", cert, key)
		data := filepath.Join(dir, "..data")
		var log journal
		c, err := LoadCertificate(filepath.Join(data, "tls.crt"), filepath.Join(data, "tls.key"), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = c.Run(ctx) }() // it returns nothing else
		refused := 0
		served := func(reason, want string, refusal string) {
			t.Helper()
			log.take()
			time.Sleep(2 * lookEvery)
			synctest.Wait()
			pair, err := c.Config().GetCertificate(nil)
			if err != nil || pair.Leaf.Subject.CommonName != want {
				t.Errorf("%s %s is served: %v", reason, pair.Leaf.Subject.CommonName, err)
			}
			if refusal != "" {
				refused++
			}
			said := log.take()
			if n := strings.Count(said, "level=ERROR"); n > 1 || (n == 1) != (refusal != "") || !strings.Contains(said, refusal) {
				t.Errorf("%s It says: %s", reason, said)
			}
			if got := testutil.ToFloat64(c.reloads.WithLabelValues("failure")); got != float64(refused) {
				t.Errorf("%s %v failures are counted, want %d", reason, got, refused)
			}
		}
		served("Nothing has changed.", "first", "")
		cert, key = issue(t, "second", time.Time{}, time.Time{})
		mount("two", cert, key)
		served("The link leads elsewhere.", "second", "")
		cert, _ = issue(t, "third", time.Time{}, time.Time{})
		mount("three", cert, key)
		served("The key belongs to another certificate.", "second", "private key does not match")
		mount("four", []byte("nonsense"), key)
		served("It is no certificate.", "second", "failed to find any PEM data")
		cert, key = issue(t, "old", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
		mount("five", cert, key)
		served("It has expired.", "second", "it has expired")
		cert, key = issue(t, "young", time.Now().Add(30*time.Minute), time.Now().Add(2*time.Hour))
		mount("six", cert, key)
		served("It is not good yet.", "second", "it is good from")
		if err := os.Remove(data); err != nil {
			t.Fatal(err)
		}
		served("There is nothing.", "second", "no such file")
		cert, key = issue(t, "third", time.Time{}, time.Time{})
		mount("seven", cert, key)
		served("It is there again.", "third", "")
		cert, key = issue(t, "fourth", time.Time{}, time.Time{})
		put(t, data, cert, key)
		served("The files are written over.", "fourth", "")
		if got, want := testutil.ToFloat64(c.expiry), float64(c.current.Load().Leaf.NotAfter.Unix()); got != want {
			t.Errorf("it expires at %v, not %v", got, want)
		}
	})
}

func TestCertificateThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil); err == nil || !strings.Contains(err.Error(), "cannot load the certificate of "+dir) {
		t.Errorf("without files: %v", err)
	}
	put(t, dir, []byte("no"), []byte("no"))
	if _, err := LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil); err == nil {
		t.Error("of nonsense")
	}
}
