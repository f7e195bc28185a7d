package serve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// TestCertificateChanges replaces and damages the files of a mounted Secret, and plain files.
func TestCertificateChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mount := func(name string, cert, key []byte) { servetest.Mount(t, dir, name, cert, key) }
		cert, key := servetest.Certificate(t, "first", time.Time{}, time.Time{})
		mount("one", cert, key)
		data := filepath.Join(dir, "..data")
		var log testlog.Book
		c, err := LoadCertificate(filepath.Join(data, "tls.crt"), filepath.Join(data, "tls.key"), log.Logger())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = c.Run(ctx) }() // it always returns nil
		refused := 0
		served := func(reason, want string, refusal string) {
			t.Helper()
			log.Take()
			time.Sleep(2 * lookEvery)
			synctest.Wait()
			pair, err := c.Config().GetCertificate(nil)
			if err != nil || pair.Leaf.Subject.CommonName != want {
				t.Errorf("%s %s is served: %v", reason, pair.Leaf.Subject.CommonName, err)
			}
			if refusal != "" {
				refused++
			}
			logged := log.Take()
			if n := strings.Count(logged, "level=ERROR"); n > 1 || (n == 1) != (refusal != "") ||
				!strings.Contains(logged, refusal) {
				t.Errorf("%s It logs: %s", reason, logged)
			}
			if got := testutil.ToFloat64(c.reloads.WithLabelValues("failure")); got != float64(refused) {
				t.Errorf("%s %v failures, want %d", reason, got, refused)
			}
		}
		served("Nothing has changed.", "first", "")
		cert, key = servetest.Certificate(t, "second", time.Time{}, time.Time{})
		mount("two", cert, key)
		served("The link leads elsewhere.", "second", "")
		cert, _ = servetest.Certificate(t, "third", time.Time{}, time.Time{})
		mount("three", cert, key)
		served("The key belongs to another certificate.", "second", "private key does not match")
		mount("four", []byte("nonsense"), key)
		served("It is no certificate.", "second", "failed to find any PEM data")
		cert, key = servetest.Certificate(t, "old", time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
		mount("five", cert, key)
		served("It has expired.", "second", "it has expired")
		cert, key = servetest.Certificate(t, "young", time.Now().Add(30*time.Minute), time.Now().Add(2*time.Hour))
		mount("six", cert, key)
		served("It is not good yet.", "second", "it is good from")
		if err := os.Remove(data); err != nil {
			t.Fatal(err)
		}
		served("There is nothing.", "second", "no such file")
		cert, key = servetest.Certificate(t, "third", time.Time{}, time.Time{})
		mount("seven", cert, key)
		served("It is there again.", "third", "")
		cert, key = servetest.Certificate(t, "fourth", time.Time{}, time.Time{})
		servetest.Write(t, data, cert, key)
		served("The files are written over.", "fourth", "")
		if got, want := testutil.ToFloat64(c.expiry), float64(c.current.Load().Leaf.NotAfter.Unix()); got != want {
			t.Errorf("it expires at %v, want %v", got, want)
		}
	})
}

func TestCertificateThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil); err == nil ||
		!strings.Contains(err.Error(), "cannot load the certificate of "+dir) {
		t.Errorf("without files: %v", err)
	}
	servetest.Write(t, dir, []byte("no"), []byte("no"))
	if _, err := LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil); err == nil {
		t.Error("malformed files are accepted")
	}
}
