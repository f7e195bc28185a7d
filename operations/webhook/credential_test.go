package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/operations/webhook/guard"
	"github.com/fairlead-io/fairlead/operations/webhook/signature"
)

const (
	keyA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	keyB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// recorder is an endpoint that records the headers of its requests.
type recorder struct {
	*httptest.Server
	headers chan http.Header
}

func record(t *testing.T, answer http.HandlerFunc) *recorder {
	r := &recorder{headers: make(chan http.Header, 100)}
	r.Server = newServer(t, func(w http.ResponseWriter, req *http.Request) {
		r.headers <- req.Header.Clone()
		if answer != nil {
			answer(w, req)
		}
	})
	return r
}

func allSecrets() *secrets {
	return newSecrets().
		set("basic", map[string]string{"username": "ada", "password": "correct horse\n"}).
		set("bearer", map[string]string{"token": "tok-e/n+1\n"}).
		set("oauth", map[string]string{"client_id": "the id", "client_secret": "the:secret"}).
		set("signing", map[string]string{"new": keyA, "old": keyB + "\n"}).
		set("empty", map[string]string{})
}

func TestBasicBearerAndSigning(t *testing.T) {
	t.Parallel()
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	for _, tc := range []struct {
		reason string
		auth   *webhook.Auth
		want   string
	}{
		{"basic", &webhook.Auth{Basic: "basic"}, "Basic YWRhOmNvcnJlY3QgaG9yc2U="},
		{"bearer", &webhook.Auth{Bearer: "bearer"}, "Bearer tok-e/n+1"},
		{"none", nil, "mine"},
	} {
		hook := compile(t, webhook.Definition{
			Auth: tc.auth, SigningSecret: "signing",
			Request: webhook.Request{URL: server.URL, Headers: map[string]string{"Authorization": "mine"}},
		})
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
			t.Fatalf("%s: %+v", tc.reason, res)
		}
		h := <-server.headers
		if got := h.Get("Authorization"); got != tc.want {
			t.Errorf("%s: Authorization %q, want %q", tc.reason, got, tc.want)
		}
		for _, key := range []string{keyA, keyB} {
			verifier, err := signature.NewVerifier(key)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(h, []byte("{}")); err != nil {
				t.Errorf("%s: signature: %v", tc.reason, err)
			}
		}
	}
}

func TestMissingCredentials(t *testing.T) {
	t.Parallel()
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets().set("badkey", map[string]string{"k": "whsec_short"})})
	for _, tc := range []struct {
		def  webhook.Definition
		want string
	}{
		{
			webhook.Definition{Auth: &webhook.Auth{Basic: "absent"}},
			"spec.auth.basic: cannot read secret absent: secret ns/absent not found",
		},
		{
			webhook.Definition{Auth: &webhook.Auth{Bearer: "basic"}},
			"spec.auth.bearer: cannot use secret basic: it has no token",
		},
		{webhook.Definition{SigningSecret: "empty"}, "spec.signing.secretRef: cannot sign: secret empty has no keys"},
		{
			webhook.Definition{SigningSecret: "badkey"},
			"spec.signing.secretRef: cannot sign with secret badkey: key 1: cannot use signing key: it is not base64",
		},
		{
			webhook.Definition{TLS: webhook.TLS{CASecret: "empty"}},
			"spec.tls.caSecretRef: cannot use secret empty: it has no ca.crt",
		},
		{
			webhook.Definition{Auth: &webhook.Auth{
				ServiceAccountToken: &webhook.ServiceAccountToken{Audience: "a", ServiceAccountName: "s"},
			}},
			"spec.auth.serviceAccountToken: cannot get a token: no service accounts here",
		},
	} {
		tc.def.Request.URL = server.URL
		hook := compile(t, tc.def)
		res := permit(t, client, hook).Call(t.Context(), aCall())
		if res.Verdict != webhook.Retry || res.Message != tc.want || !errors.Is(res.Err, webhook.ErrCredentials) {
			t.Errorf("got %v %q, want Retry %q", res.Verdict, res.Message, tc.want)
		}
		if res := permit(t, client, hook).Poll(t.Context(), aCall(), server.URL+"/poll"); res.Verdict != webhook.Pending {
			t.Errorf("poll: got %v %q, want Pending", res.Verdict, res.Message)
		}
	}
	if len(server.headers) != 0 {
		t.Error("a request went out without its credentials")
	}
	if got := client.Breaker("ns", t.Name()); got.Failures != 0 {
		t.Errorf("the breaker counts an error that the endpoint has not caused: %+v", got)
	}
}

// tokenServer grants tokens tok-1, tok-2 …
func tokenServer(t *testing.T, expiresIn int) (*httptest.Server, *atomic.Int32) {
	var granted atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "the+id" || secret != "the%3Asecret" ||
			r.FormValue("scope") != "a b" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"not %s"}`, secret)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"tok-%d-long-enough","token_type":"bearer","expires_in":%d}`, granted.Add(1),
			expiresIn)
	})
	return server, &granted
}

func oauth(url string) *webhook.Auth {
	return &webhook.Auth{OAuth2: &webhook.OAuth2{TokenURL: url, Scopes: []string{"a", "b"}, Secret: "oauth"}}
}

func TestOAuth2(t *testing.T) {
	t.Parallel()
	tokenURL, granted := tokenServer(t, 3600)
	var revoked atomic.Value
	revoked.Store("")
	server := record(t, func(w http.ResponseWriter, r *http.Request) {
		if rev := revoked.Load().(string); rev == "all" || r.Header.Get("Authorization") == rev {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	resolver := allSecrets()
	client := newClient(t, webhook.Options{Resolver: resolver})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(tokenURL.URL)})
	call := func(reason string, want webhook.Verdict, sent ...string) {
		t.Helper()
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != want {
			t.Errorf("%s: %+v", reason, res)
		}
		for _, token := range sent {
			if got := (<-server.headers).Get("Authorization"); got != "Bearer "+token {
				t.Errorf("%s: sent %q, want %q", reason, got, token)
			}
		}
		if len(server.headers) != 0 {
			t.Errorf("%s: %d more requests", reason, len(server.headers))
		}
	}
	call("the first token", webhook.Succeeded, "tok-1-long-enough")
	call("from the cache", webhook.Succeeded, "tok-1-long-enough")
	revoked.Store("Bearer tok-1-long-enough")
	call("a revoked token is dropped once", webhook.Succeeded, "tok-1-long-enough", "tok-2-long-enough")
	revoked.Store("all")
	call("and not again and again", webhook.Failed, "tok-2-long-enough", "tok-3-long-enough")
	revoked.Store("")
	other := compile(t, webhook.Definition{
		Namespace: "ns", Name: "other", Request: webhook.Request{URL: server.URL}, Auth: oauth(tokenURL.URL),
	})
	if res := permit(t, client, other).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("%+v", res)
	}
	if got := (<-server.headers).Get("Authorization"); got != "Bearer tok-4-long-enough" {
		t.Errorf("another definition shares the token: %s", got)
	}
	call("a token that was refused when it was new is not used again", webhook.Succeeded, "tok-5-long-enough")
	call("its successor is", webhook.Succeeded, "tok-5-long-enough")
	if got := granted.Load(); got != 5 {
		t.Errorf("%d tokens were granted, want 5", got)
	}
	resolver.set("oauth", map[string]string{"client_id": "the id", "client_secret": "wrong-secret"})
	res := permit(t, client, hook).Call(t.Context(), aCall())
	if res.Verdict != webhook.Failed || strings.Contains(res.Message, "wrong") ||
		!strings.Contains(res.Message, "invalid_client") {
		t.Errorf("refused secret: %v %q", res.Verdict, res.Message)
	}
}

func TestOAuth2Renewal(t *testing.T) {
	t.Parallel()
	tokenURL, granted := tokenServer(t, 60)
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(tokenURL.URL)})
	for want := range int32(2) {
		if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
			t.Fatalf("%+v", res)
		}
		if got := granted.Load(); got != want+1 {
			t.Errorf("%d tokens were granted, want %d", got, want+1)
		}
		client.ExpireTokens()
	}
}

// TestOAuth2OtherTokens: a token of another type than bearer is never sent, not even by later tries.
func TestOAuth2OtherTokens(t *testing.T) {
	t.Parallel()
	tokenURL := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"tok-1-long-enough","token_type":"mac","expires_in":3600}`)
	})
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(tokenURL.URL)})
	for range 2 {
		res := permit(t, client, hook).Call(t.Context(), aCall())
		if res.Verdict != webhook.Retry || !strings.Contains(res.Message, "no bearer token") {
			t.Errorf("%v %q", res.Verdict, res.Message)
		}
	}
	if n := len(server.headers); n != 0 {
		t.Errorf("%d requests with such a token", n)
	}
}

// TestOAuth2OneFetch: concurrent callers share one request for a token.
func TestOAuth2OneFetch(t *testing.T) {
	t.Parallel()
	tokenURL, granted := tokenServer(t, 3600)
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(tokenURL.URL)})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			p, _ := client.Acquire(hook, "id", nil)
			if res := p.Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	if got := granted.Load(); got != 1 {
		t.Errorf("%d tokens were granted, want 1", got)
	}
}

func TestOAuth2EndpointDown(t *testing.T) {
	t.Parallel()
	server := record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	down := newServer(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
	hook := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(down.URL)})
	if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Retry {
		t.Errorf("503: %+v", res)
	}
	redirecting := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, server.URL, http.StatusTemporaryRedirect)
	})
	hook = compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, Auth: oauth(redirecting.URL)})
	if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Retry {
		t.Errorf("307: %+v", res)
	}
	strict := newClient(t, webhook.Options{Resolver: allSecrets(), AllowTargets: []string{"10.0.0.1"}})
	hook = compile(t, webhook.Definition{Request: webhook.Request{URL: "https://example.com"}, Auth: oauth(down.URL)})
	if res := permit(t, strict, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Refused ||
		!errors.Is(res.Err, guard.ErrRefused) {
		t.Errorf("token endpoint on loopback: %+v", res)
	}
	if len(server.headers) != 0 {
		t.Error("the endpoint was called without a token, or the redirect was followed")
	}
}

func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	server := record(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer stale-token" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	resolver := allSecrets()
	resolver.token = func(r webhook.TokenRequest) (string, error) {
		if r.Namespace != "ns" || r.Audience != "aud" || r.ServiceAccountName != "caller" {
			return "", fmt.Errorf("unexpected request %+v", r)
		}
		if r.Refused == "stale-token" {
			return "fresh-token", nil
		}
		return "stale-token", nil
	}
	client := newClient(t, webhook.Options{Resolver: resolver})
	hook := compile(t, webhook.Definition{
		Request: webhook.Request{URL: server.URL},
		Auth: &webhook.Auth{ServiceAccountToken: &webhook.ServiceAccountToken{
			Audience: "aud", ServiceAccountName: "caller",
		}},
	})
	if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("%+v", res)
	}
	<-server.headers
	if got := (<-server.headers).Get("Authorization"); got != "Bearer fresh-token" {
		t.Errorf("sent %q", got)
	}
	resolver.token = func(webhook.TokenRequest) (string, error) {
		return "", fmt.Errorf("wrapped: %w", &webhook.FieldError{
			Field: "spec.auth.serviceAccountToken.audience", Err: errors.New("it is our own"),
		})
	}
	if res := permit(t, client, hook).Call(t.Context(), aCall()); res.Verdict != webhook.Invalid ||
		!strings.Contains(res.Message, "serviceAccountToken.audience: it is our own") {
		t.Errorf("an error that no retry can fix: %+v", res)
	}
	if res := permit(t, client, hook).Poll(t.Context(), aCall(), server.URL); res.Verdict != webhook.Pending {
		t.Errorf("a job in progress does not continue: %+v", res)
	}
}

// TestForeignPoll: credentials go only to the origin of the request and to hosts that the definition names.
func TestForeignPoll(t *testing.T) {
	t.Parallel()
	home, foreign := record(t, nil), record(t, nil)
	client := newClient(t, webhook.Options{Resolver: allSecrets()})
	for _, tc := range []struct {
		reason   string
		location string
		pollURL  string
		server   *recorder
		trusted  bool
	}{
		{"the origin of the request", "", home.URL + "/jobs/1", home, true},
		{"another port counts as another host", "", foreign.URL + "/jobs/1", foreign, false},
		{
			"a host that the definition names", fmt.Sprintf("%q + response.body.id", foreign.URL+"/jobs/"),
			foreign.URL + "/jobs/1", foreign, true,
		},
		{
			"a name with the same prefix", fmt.Sprintf("%q + response.body.id", foreign.URL[:len(foreign.URL)-1]),
			foreign.URL + "/jobs/1", foreign, false,
		},
	} {
		hook := compile(t, webhook.Definition{
			Mode: webhook.Async, Auth: &webhook.Auth{Bearer: "bearer"}, SigningSecret: "signing",
			Request:  webhook.Request{URL: home.URL, Headers: map[string]string{"X-Api-Key": "static"}},
			Response: webhook.Response{Location: tc.location},
		})
		if res := permit(t, client, hook).Poll(t.Context(), aCall(), tc.pollURL); res.Verdict != webhook.Pending {
			t.Errorf("%s: %+v", tc.reason, res)
		}
		h := <-tc.server.headers
		for _, name := range []string{"Authorization", "Webhook-Signature", "X-Api-Key"} {
			if got := h.Get(name) != ""; got != tc.trusted {
				t.Errorf("%s: %s sent: %v, want %v", tc.reason, name, got, tc.trusted)
			}
		}
		if h.Get("Webhook-Id") != "ns.op-1.cleanup" || h.Get("X-Correlation-Id") != "corr-1" {
			t.Errorf("%s: a poll lacks protocol headers: %v", tc.reason, h)
		}
	}
	edited := compile(t, webhook.Definition{
		Mode: webhook.Async, Auth: &webhook.Auth{Bearer: "bearer"},
		Request: webhook.Request{URL: "https://gone.example/{{.Resource.nothing}}"},
	})
	if res := permit(t, client, edited).Poll(t.Context(), aCall(), home.URL); res.Verdict != webhook.Pending {
		t.Errorf("a definition that no longer renders ends the poll: %+v", res)
	}
	if (<-home.headers).Get("Authorization") != "" {
		t.Error("credentials go to a host that is no longer named")
	}
}

// TestEchoedSecrets: if a receiver echoes the request in any spelling, no secret gets into a result.
func TestEchoedSecrets(t *testing.T) {
	t.Parallel()
	const password = `p@ss/wo"rd+1`
	resolver := newSecrets().set("basic", map[string]string{"username": "ada", "password": password}).set("signing",
		map[string]string{"k": keyA})
	spellings := []string{
		password, "p%40ss%2Fwo%22rd%2B1", "p%40ss%2fwo%22rd%2b1", `p@ss/wo\"rd+1`, "cEBzcy93byJyZCsx",
		"YWRhOnBAc3Mvd28icmQrMQ==", "7040" + "73732f776f2272642b31", keyA, keyA[6:], "tok0123456789abcdefTOKEN",
	}
	for _, where := range []string{"text", "json", "escaped", "header", "location", "html"} {
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			all := strings.Join(spellings, " ") + " " + r.Header.Get("Authorization")
			switch where {
			case "text":
				w.WriteHeader(400)
				io.WriteString(w, all)
			case "json":
				w.WriteHeader(400)
				json.NewEncoder(w).Encode(map[string]string{"error": all})
			case "escaped": // found only after parsing
				w.WriteHeader(400)
				io.WriteString(w, `{"error":"`)
				for _, c := range password {
					fmt.Fprintf(w, `\u%04x`, c)
				}
				io.WriteString(w, `"}`)
			case "header":
				w.Header().Set("X-Echo", all)
				w.WriteHeader(400)
			case "location":
				w.Header().Set("Location", "/jobs?auth="+spellings[1])
				w.WriteHeader(202)
			case "html":
				w.WriteHeader(503)
				io.WriteString(w, "<p>"+all)
			}
		})
		hook := compile(t, webhook.Definition{
			Mode: webhook.Async, Auth: &webhook.Auth{Basic: "basic"}, SigningSecret: "signing",
			Request: webhook.Request{URL: server.URL},
			Response: webhook.Response{
				Error: `"x-echo" in response.headers ? response.headers["x-echo"] : string(response.body.error)`,
			},
		})
		if where == "header" {
			hook = compile(t, webhook.Definition{
				Auth: &webhook.Auth{Basic: "basic"}, SigningSecret: "signing",
				Request: webhook.Request{URL: server.URL}, Response: webhook.Response{Error: `response.headers["x-echo"]`},
			})
		}
		call := aCall()
		call.Data.CallbackURL = "https://fairlead.example/callbacks/tok0123456789abcdefTOKEN"
		res := permit(t, newClient(t, webhook.Options{Resolver: resolver}), hook).Call(t.Context(), call)
		shown := fmt.Sprintf("%+v %v %#v", res, res.Err, res)
		for _, secret := range spellings {
			if strings.Contains(shown, secret) {
				t.Errorf("%s: the result shows %q: %s", where, secret, shown)
			}
		}
		if where == "location" && (res.Verdict != webhook.Failed || res.Location != "") {
			t.Errorf("a poll URL with a secret is kept: %+v", res)
		}
		if where != "location" && where != "html" && !strings.Contains(res.Message, "[masked]") {
			t.Errorf("%s: nothing is masked: %s", where, shown)
		}
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	resolver := newSecrets().
		set("client", map[string]string{"tls.crt": cert, "tls.key": key}).
		set("swapped", map[string]string{"tls.crt": key, "tls.key": cert}).
		set("ca", map[string]string{"ca.crt": string(ca)}).
		set("badca", map[string]string{"ca.crt": "none"})
	client := newClient(t, webhook.Options{Resolver: resolver})
	mtls := &webhook.Auth{MTLS: "client"}
	for _, tc := range []struct {
		reason string
		auth   *webhook.Auth
		tls    webhook.TLS
		want   webhook.Verdict
		part   string
	}{
		{"certificate and authority", mtls, webhook.TLS{CASecret: "ca"}, webhook.Succeeded, ""},
		{"no certificate", nil, webhook.TLS{CASecret: "ca"}, webhook.Failed, "403"},
		{"an untrusted authority", mtls, webhook.TLS{}, webhook.Retry, "certificate"},
		{"the name in the certificate", mtls, webhook.TLS{CASecret: "ca", ServerName: "example.com"}, webhook.Succeeded, ""},
		{"another name", mtls, webhook.TLS{CASecret: "ca", ServerName: "other.test"}, webhook.Retry, "other.test"},
		{"no authority in the secret", mtls, webhook.TLS{CASecret: "badca"}, webhook.Retry, "cannot use ca.crt"},
		{
			"key and certificate swapped", &webhook.Auth{MTLS: "swapped"},
			webhook.TLS{CASecret: "ca"},
			webhook.Retry,
			"cannot use tls.crt and tls.key",
		},
	} {
		hook := compile(t, webhook.Definition{
			Namespace: "ns", Name: tc.reason, Request: webhook.Request{URL: server.URL}, Auth: tc.auth, TLS: tc.tls,
		})
		res := permit(t, client, hook).Call(t.Context(), aCall())
		if res.Verdict != tc.want || !strings.Contains(res.Message, tc.part) {
			t.Errorf("%s: got %v %q", tc.reason, res.Verdict, res.Message)
		}
	}
	hook := compile(t, webhook.Definition{
		Mode: webhook.Async, Request: webhook.Request{URL: "https://127.0.0.1:1/"},
		Auth: mtls, TLS: webhook.TLS{CASecret: "ca", ServerName: "other.test"},
	})
	res := permit(t, client, hook).Poll(t.Context(), aCall(), server.URL)
	if res.Verdict != webhook.Pending || res.StatusCode != http.StatusForbidden {
		t.Errorf("a poll of another host: got %v %d %q, want it without certificate and server name", res.Verdict,
			res.StatusCode, res.Message)
	}
}

func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "caller"},
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
