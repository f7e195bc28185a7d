package connection

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
)

// tokenOfPlugin makes the test binary a credential plugin. The variable names the file with the token.
const tokenOfPlugin = "FAIRLEAD_TEST_TOKEN_OF_PLUGIN"

func TestMain(m *testing.M) {
	if file := os.Getenv(tokenOfPlugin); file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			os.Exit(1)
		}
		fmt.Printf(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}`, token)
		return
	}
	goleak.VerifyTestMain(m)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newConn(t *testing.T, cfg *rest.Config) *Conn {
	t.Helper()
	c, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// get sends a request as a client call does: after a 401 it reloads the credentials and retries once.
func get(c *Conn) (code int, tries int, err error) {
	for tries = 1; ; tries++ {
		g, err := c.Acquire()
		if err != nil {
			return 0, tries, err
		}
		r, _ := http.NewRequest(http.MethodGet, c.Base().String(), nil)
		res, err := g.Do(r)
		if err == nil {
			code = res.StatusCode
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		g.Release()
		if err != nil || code != http.StatusUnauthorized || tries == 2 {
			return code, tries, err
		}
		if err := c.Reload(g); err != nil {
			return code, tries, err
		}
	}
}

// expect sends a request that must succeed after this number of tries.
func expect(t *testing.T, c *Conn, reason string, tries int) {
	t.Helper()
	if code, n, err := get(c); code != http.StatusOK || n != tries || err != nil {
		t.Fatalf("%s: status %d after %d tries, %v; want 200 after %d", reason, code, n, err, tries)
	}
}

// bearers returns a server that accepts one token.
func bearers(t *testing.T) (server *httptest.Server, accept func(token string)) {
	t.Helper()
	var valid atomic.Value
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	return server, func(token string) { valid.Store(token) }
}

func insecure(server *httptest.Server) *rest.Config {
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	for reason, own := range map[string]bool{"own transport": false, "transport of the caller": true} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			server, accept := bearers(t)
			cfg, o := insecure(server), Options{}
			cfg.BearerTokenFile = filepath.Join(t.TempDir(), "token")
			cfg.BearerToken = "old" // as in a pod
			write(t, cfg.BearerTokenFile, "old\n")
			if own {
				var err error
				if o.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(o.HTTPClient.CloseIdleConnections)
			}
			c, err := New(cfg, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			accept("old")
			expect(t, c, "the first token", 1)
			accept("new")
			if code, n, err := get(c); code != http.StatusUnauthorized || n != 2 || err != nil {
				t.Fatalf("with an old file: status %d after %d tries, %v", code, n, err)
			}
			write(t, cfg.BearerTokenFile, "new\n")
			expect(t, c, "the first request after the rotation", 2)
			expect(t, c, "the next one", 1)
		})
	}
}

// TestReloadThatFails: the caller gets the cause, the previous credentials stay, and no lock is held.
func TestReloadThatFails(t *testing.T) {
	t.Parallel()
	server, accept := bearers(t)
	cfg := insecure(server)
	cfg.BearerToken, cfg.BearerTokenFile = "old", filepath.Join(t.TempDir(), "token")
	c := newConn(t, cfg)
	accept("new")
	for range 2 {
		if code, n, err := get(c); code != http.StatusUnauthorized || n != 1 || err == nil ||
			!strings.Contains(err.Error(), "no such file") {
			t.Fatalf("status %d after %d tries, %v", code, n, err)
		}
	}
	accept("old")
	expect(t, c, "the previous credentials", 1)
}

// TestReloadOnceForAll: requests that are refused together reload the credentials once. A later refusal reloads them
// again.
func TestReloadOnceForAll(t *testing.T) {
	t.Parallel()
	const together = 50
	var valid atomic.Value
	var refused sync.WaitGroup // all requests of a round are sent before the first one is refused
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			refused.Done()
			refused.Wait()
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	var transports atomic.Int32
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	c := newConn(t, &rest.Config{
		Host: server.URL, BearerTokenFile: file,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			transports.Add(1)
			return next
		},
	})
	valid.Store("old")
	expect(t, c, "the first token", 1)
	for round := int32(1); round <= 2; round++ {
		valid.Store(fmt.Sprintf("new %d", round))
		write(t, file, fmt.Sprintf("new %d", round))
		refused.Add(together)
		var all sync.WaitGroup
		for range together {
			all.Go(func() {
				if code, n, err := get(c); code != http.StatusOK || n != 2 || err != nil {
					t.Errorf("status %d after %d tries, %v", code, n, err)
				}
			})
		}
		all.Wait()
		if n := transports.Load(); n != 2*(round+1) { // one for lists and watches, one for other requests
			t.Errorf("%d transports after %d rotations, want %d", n, round, 2*(round+1))
		}
	}
}

// writeCertificate writes a certificate and its key as PEM.
func writeCertificate(t *testing.T, cfg *rest.Config, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cfg.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})))
	write(t, cfg.KeyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

// age makes certificate files due for a comparison.
func (c *Conn) age() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.checked = c.current.checked.Add(-recheckFiles)
}

// TestClientCertificate: a new client certificate is used after a 401. Without a 401 it is used after five minutes,
// although the connection still works.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	authority := servetest.NewAuthority(t, "clients")
	var valid, seen atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.TLS.PeerCertificates[0].Subject.CommonName
		seen.Store(name + " by " + r.Proto)
		if !strings.Contains(valid.Load().(string), name) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg, dir := insecure(server), t.TempDir()
	cfg.CertFile, cfg.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	issue := func(name string) {
		writeCertificate(t, cfg, authority.Issue(t, name, x509.ExtKeyUsageClientAuth, time.Time{}))
	}
	issue("first")
	c := newConn(t, cfg)
	valid.Store("first")
	expect(t, c, "the first certificate", 1)

	valid.Store("second")
	issue("second")
	expect(t, c, "the first request after the rotation", 2)

	valid.Store("second third")
	issue("third")
	expect(t, c, "before the comparison", 1)
	if got := seen.Load(); got != "second by HTTP/2.0" {
		t.Errorf("used %s, want the second certificate", got)
	}
	c.age()
	expect(t, c, "after the comparison", 1)
	if got := seen.Load(); got != "third by HTTP/2.0" {
		t.Errorf("used %s, want the third certificate", got)
	}

	if err := os.Remove(cfg.KeyFile); err != nil {
		t.Fatal(err)
	}
	c.age()
	expect(t, c, "with a file that is missing for a moment", 1)
}

// TestAuthority: a server with a certificate of a new CA is trusted once the file contains the CA.
func TestAuthority(t *testing.T) {
	t.Parallel()
	first, second := servetest.NewAuthority(t, "first"), servetest.NewAuthority(t, "second")
	var serving atomic.Pointer[tls.Certificate]
	serving.Store(first.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return serving.Load(), nil
	}}
	server.Config.SetKeepAlivesEnabled(false) // each request has a handshake
	server.StartTLS()
	t.Cleanup(server.Close)
	server.TLS.Certificates = nil // without a certificate of its own, the server calls GetCertificate
	cfg := &rest.Config{Host: server.URL}
	cfg.CAFile = first.File
	c := newConn(t, cfg)
	expect(t, c, "the first authority", 1)
	serving.Store(second.Issue(t, "server", x509.ExtKeyUsageServerAuth, time.Time{}))
	if _, _, err := get(c); err == nil {
		t.Fatal("a server of an unknown authority is trusted")
	}
	write(t, first.File, string(first.PEM)+string(second.PEM))
	c.age()
	expect(t, c, "the second authority", 1)
}

// TestPlugin: a credential plugin runs again after a 401.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server, accept := bearers(t)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	cfg := insecure(server)
	cfg.ExecProvider = &clientcmdapi.ExecConfig{
		Command: os.Args[0], APIVersion: "client.authentication.k8s.io/v1",
		Env:             []clientcmdapi.ExecEnvVar{{Name: tokenOfPlugin, Value: file}},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	c := newConn(t, cfg)
	accept("old")
	expect(t, c, "the first token", 1)
	accept("new")
	write(t, file, "new")
	expect(t, c, "the first request after the rotation", 2)
	expect(t, c, "the next one", 1)
}

// TestAbandonKeepsCredentials: a stalled request opens a new connection even while the files are unreadable.
func TestAbandonKeepsCredentials(t *testing.T) {
	t.Parallel()
	server, accept := bearers(t)
	cfg := insecure(server)
	cfg.BearerTokenFile = filepath.Join(t.TempDir(), "token")
	write(t, cfg.BearerTokenFile, "good")
	c := newConn(t, cfg)
	accept("good")
	expect(t, c, "the first request", 1)
	g := c.current
	c.Abandon(g)
	if c.current == g {
		t.Error("a generation on which a request stalled stays")
	}
	expect(t, c, "on a new connection", 1)
	if err := os.Remove(cfg.BearerTokenFile); err != nil {
		t.Fatal(err)
	}
	g = c.current
	c.Abandon(g)
	if c.current != g {
		t.Error("a generation without credentials is in use")
	}
	expect(t, c, "with the token that was read before", 1)
}

// TestRequestsAfterClose: requests after Close work, and their connections close with them.
func TestRequestsAfterClose(t *testing.T) {
	t.Parallel()
	server, accept := bearers(t)
	cfg := insecure(server)
	cfg.BearerToken = "good"
	c := newConn(t, cfg)
	accept("good")
	expect(t, c, "before Close", 1)
	inFlight, err := c.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	expect(t, c, "beside a request", 1)
	if c.current != inFlight {
		t.Error("a request beside another one opens a connection of its own")
	}
	inFlight.Release()
	expect(t, c, "after Close", 1)
	if c.current != nil { // TestMain finds connections that stay open
		t.Error("a generation stays after the last request")
	}
}

// TestHeaders: lists and watches are not compressed and have a User-Agent of their own. A transport or a User-Agent of
// the caller overrides this.
func TestHeaders(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, _, _ := strings.Cut(r.UserAgent(), "/")
		fmt.Fprintf(w, "%s %s", agent, r.Header.Get("Accept-Encoding"))
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	program, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	for reason, tc := range map[string]struct {
		cfg           rest.Config
		o             Options
		stream, other string
	}{
		"defaults": {stream: "fairlead identity", other: program + " gzip"},
		"no compression": {
			cfg: rest.Config{DisableCompression: true}, stream: "fairlead identity", other: program + " ",
		},
		"a User-Agent": {cfg: rest.Config{UserAgent: "ours/1"}, stream: "ours identity", other: "ours gzip"},
		"a transport":  {cfg: rest.Config{Transport: transport}, stream: "fairlead gzip", other: program + " gzip"},
		"a client of the caller": {
			o:      Options{HTTPClient: &http.Client{Transport: transport}},
			stream: "Go-http-client gzip", other: "Go-http-client gzip",
		},
	} {
		tc.cfg.Host = server.URL
		c, err := New(&tc.cfg, tc.o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		g, err := c.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range []struct {
			want string
			send func(*http.Request) (*http.Response, error)
		}{{tc.stream, g.Stream}, {tc.other, g.Do}} {
			r, _ := http.NewRequest(http.MethodGet, server.URL, nil)
			res, err := each.send(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if string(got) != each.want {
				t.Errorf("%s: sent %q, want %q", reason, got, each.want)
			}
		}
		g.Release()
	}
}
