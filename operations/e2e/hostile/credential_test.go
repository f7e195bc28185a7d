package hostile_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// keysAlike runs operations of the same operationID that call Webhooks of the same name. The attacker's namespace calls
// first, then the victim's. Their common receiver obeys idempotency keys.
func keysAlike(a *tenant) {
	a.webhook(hookGood, a.s.victim.receiver.URL, nil)
	for i := range sameIDs {
		id := fmt.Sprint("same-", i)
		same := func(spec *v1alpha1.OperationSpec) { spec.OperationID, spec.WebhookIDs = id, []string{hookGood} }
		a.operation(id, same)
		a.mustEnd(id, "")
		_ = a.hit(createOperation(a.ctx, a.s.victim.calls, a.s.victim.namespace, id, once, same)) // hit counts the error
	}
	<-a.ctx.Done()
}

const sameIDs = 5

// keysDiffer checks that the two keys of each operation differ.
func keysDiffer(a *tenant) (problems []string) {
	a.s.victim.mu.Lock()
	effects := maps.Clone(a.s.victim.effects)
	a.s.victim.mu.Unlock()
	for i := range sameIDs {
		var keys []string
		for key := range effects {
			if strings.Contains(key, fmt.Sprintf("same-%d.", i)) {
				keys = append(keys, key)
			}
		}
		if len(keys) != 2 {
			problems = append(problems, fmt.Sprintf("operation same-%d of two namespaces has the idempotency keys %q, not two",
				i, keys))
		}
	}
	return problems
}

// targetsInside calls targets that no tenant may reach: the API server by all its names, and addresses that give out
// credentials.
func targetsInside(a *tenant) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(a.s.admin.Host, "https://"))
	if err != nil {
		a.t.Error(err)
		return
	}
	for i, url := range []string{
		a.s.admin.Host + "/", "https://localhost:" + port, "https://[::ffff:127.0.0.1]:" + port, "https://2130706433:" + port,
		"https://127.1:" + port,
		"http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/",
		"http://0.0.0.0:" + port, "http://10.0.0.1/",
	} {
		name := fmt.Sprint("h", i)
		a.webhook(name, url, nil)
		a.call(name, name)
	}
	a.mustEnd("h0", v1alpha1.ReasonTargetRefused)
	for _, i := range []int{5, 6, 7, 9} {
		a.mustEnd(fmt.Sprint("h", i), v1alpha1.ReasonTargetRefused)
	}
	away := a.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", a.s.admin.Host+"/api")
		w.WriteHeader(http.StatusAccepted)
	})
	a.webhook("poll", away, func(w *v1alpha1.WebhookSpec) {
		w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}
	})
	a.call("poll", "poll")
	a.mustEnd("poll", v1alpha1.ReasonTargetRefused)
	<-a.ctx.Done()
}

// pathsAndHosts puts data into URLs that changes more of the URL than intended.
func pathsAndHosts(a *tenant) {
	url := a.serve(func(w http.ResponseWriter, r *http.Request) {
		if strings.Count(r.URL.EscapedPath(), "/") != 2 || r.URL.RawQuery != "" {
			a.t.Errorf("data became a part of the URL: %s", r.URL)
		}
	})
	a.webhook("h", url+"/users/{{.Operation.resourceID}}", nil)
	for i, id := range []string{"1/roles/admin", "1?admin=true", "1#x", "..%2f..", "1\\roles", "%2e%2e/x", "a/../../b"} {
		op := newOperation(a.namespace, id)
		op.Spec.WebhookIDs = []string{"h"}
		if a.hit(submit(a.ctx, a.calls, op, once)) == nil && i < 3 {
			a.mustEnd(id, "")
		}
	}
	a.secret("login", map[string][]byte{"token": []byte("t-o-k-e-n")})
	a.webhook("host", "http://{{.TenantID}}/", func(w *v1alpha1.WebhookSpec) {
		w.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	})
	a.operation("host", func(spec *v1alpha1.OperationSpec) {
		spec.WebhookIDs, spec.RequestObject = []string{"host"},
			&v1alpha1.RequestObject{TenantID: strings.TrimPrefix(url, "http://")}
	})
	a.mustEnd("host", v1alpha1.ReasonInvalid)
	<-a.ctx.Done()
}

// tokensOfOAuth are long and never expire, one for each of many short-lived Webhooks.
func tokensOfOAuth(a *tenant) {
	a.secret("client", map[string][]byte{"client_id": []byte("id"), "client_secret": []byte("s-e-c-r-e-t")})
	answers := map[string]string{}
	for _, size := range []int{16_000, 1 << 20} {
		answers[fmt.Sprint("/", size)] = fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":2147483647}`,
			strings.Repeat("t", size))
	}
	url := a.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[r.URL.Path]) // the caller may be gone
	})
	a.always(4, 20, func(hand, i int) {
		name := fmt.Sprint("o", hand, "-", i)
		a.webhook(name, url, func(w *v1alpha1.WebhookSpec) {
			w.Auth = &v1alpha1.WebhookAuth{OAuth2: &v1alpha1.OAuth2Auth{
				TokenURL: url + []string{"/16000", "/1048576"}[i%2], SecretRef: v1alpha1.SecretReference{Name: "client"},
			}}
		})
		a.call(name, name)
	})
}

// keysOfSignatures are as many keys as a Secret holds. Each signs a long body.
func keysOfSignatures(a *tenant) {
	keys := map[string][]byte{}
	for i := range 400 {
		keys[fmt.Sprint("k", i)] = []byte("whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%024d", i)))
	}
	a.secret("keys", keys)
	few := map[string][]byte{}
	for i := range 8 {
		few[fmt.Sprint("k", i)] = keys[fmt.Sprint("k", i)]
	}
	a.secret("few", few)
	echo := a.serve(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.Copy(w, r.Body) // the caller may be gone
	})
	body := `"{{range .Resource}}{{$.Operation.correlationID}}{{end}}"`
	list := &v1alpha1.RequestObject{Resource: &apiextensionsv1.JSON{Raw: []byte("[" + strings.Repeat("1,", 4_000) + "1]")}}
	for _, name := range []string{"keys", "few"} {
		a.webhook(name, echo, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			w.Request.Body, w.Signing = &body, &v1alpha1.WebhookSigning{SecretRef: v1alpha1.SecretReference{Name: name}}
		})
	}
	a.each(100, func(i int) {
		a.operation(fmt.Sprint("s", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject, spec.CorrelationID = []string{[]string{"keys", "few"}[i%2]}, list,
				strings.Repeat("c", 250)
		})
	})
	<-a.ctx.Done()
}

// certificate creates a certificate of an unknown issuer.
func certificate(n int64) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: fmt.Sprint("ca-", n)},
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}

func pemOf(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

// certificatesChanged are bundles of the size of a Secret, changed all the time.
func certificatesChanged(a *tenant) {
	c, err := certificate(1)
	if err != nil {
		a.t.Error(err)
		return
	}
	one := pemOf(c)
	bundle := strings.Repeat(string(one), 900<<10/len(one))
	for i := range 4 {
		a.secret(fmt.Sprint("ca", i), map[string][]byte{"ca.crt": []byte(bundle)})
	}
	url := a.says(http.StatusServiceUnavailable, "")
	for i := range 300 { // each server name has its own connections
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			w.TLS = &v1alpha1.WebhookTLS{
				CASecretRef: &v1alpha1.SecretReference{Name: fmt.Sprint("ca", i%4)},
				ServerName:  fmt.Sprint("server-", i, ".example"),
			}
		})
		a.call(fmt.Sprint("c", i), fmt.Sprint("h", i))
		if a.ctx.Err() != nil {
			return
		}
		if i%20 == 0 {
			body := fmt.Appendf(nil, `{"stringData":{"ca.crt":%q}}`, fmt.Sprint(bundle, "\n", i))
			_, err := a.clients.CoreV1().Secrets(a.namespace).Patch(a.ctx, fmt.Sprint("ca", i%4), types.MergePatchType, body,
				metav1.PatchOptions{})
			_ = a.hit(err) // hit counts the error
		}
	}
	<-a.ctx.Done()
}

// connectionsHTTP2 send frames without end that the client must answer or read.
func connectionsHTTP2(a *tenant) {
	c, err := certificate(2)
	if err != nil {
		a.t.Error(err)
		return
	}
	a.secret("ca", map[string][]byte{"ca.crt": pemOf(c)})
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		b := append([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags},
			make([]byte, 4)...)
		binary.BigEndian.PutUint32(b[5:], stream)
		return append(b, payload...)
	}
	var pings, settings, headers []byte
	for range 500 {
		pings = append(pings, frame(6, 0, 0, make([]byte, 8))...)
		settings = append(settings, frame(4, 0, 0, []byte{0, 3, 0, 0, 0, 100})...)
		headers = append(headers, frame(9, 0, 1, make([]byte, 100))...)
	}
	headers = append(frame(1, 0, 1, []byte{0x88}), headers...)
	var urls []string
	for _, flood := range [][]byte{pings, settings, headers} {
		url := a.raw(func(conn net.Conn) {
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"h2"}})
			go func() { _, _ = io.Copy(io.Discard, secure) }() // ends with the connection
			if _, err := secure.Write(frame(4, 0, 0, nil)); err != nil {
				return
			}
			for a.ctx.Err() == nil {
				if _, err := secure.Write(flood); err != nil {
					return
				}
				if !pause(a.ctx, time.Millisecond) { // spare the attacker's own processor
					return
				}
			}
		})
		urls = append(urls, strings.Replace(url, "http:", "https:", 1))
	}
	a.called(30, func(w *v1alpha1.WebhookSpec) {
		w.TLS = &v1alpha1.WebhookTLS{CASecretRef: &v1alpha1.SecretReference{Name: "ca"}}
	}, urls...)
}

// connectionsToManyHosts call as many servers as there can be calls.
func connectionsToManyHosts(a *tenant) {
	for i := range 200 {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { _ = a.hit(nil) }))
		a.t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		a.webhook(fmt.Sprint("h", i), server.URL, a.again)
		// a name that does not resolve
		a.webhook(fmt.Sprint("n", i), fmt.Sprintf("http://host-%d.%s.example/", i, strings.Repeat("a.", 60)), a.again)
		a.call(fmt.Sprint("h", i), fmt.Sprint("h", i))
		a.call(fmt.Sprint("n", i), fmt.Sprint("n", i))
		if a.ctx.Err() != nil {
			return
		}
	}
	<-a.ctx.Done()
}

// connectionsOdd lead to receivers whose answers are invalid, or endless.
func connectionsOdd(a *tenant) {
	forever := func(begin, again string) string {
		return a.raw(func(conn net.Conn) {
			if _, err := conn.Read(make([]byte, 16<<10)); err != nil {
				return
			}
			if _, err := io.WriteString(conn, begin); err != nil {
				return
			}
			for a.ctx.Err() == nil && again != "" {
				if _, err := io.WriteString(conn, strings.Repeat(again, 100)); err != nil || !pause(a.ctx, time.Millisecond) {
					return
				}
			}
		})
	}
	a.called(200, func(w *v1alpha1.WebhookSpec) { w.RequestTimeout = metav1.Duration{Duration: 5 * time.Second} },
		forever("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"),
		forever("HTTP/1.1 200 OK\r\n", "X-Endless: "+strings.Repeat("h", 100)+"\r\n"),
		forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("e", 1_000)+"\r\nx\r\n"),
		forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n0\r\n",
			"X-T: "+strings.Repeat("t", 100)+"\r\n"),
		forever("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", "x"),
		forever("\x00\x01\x02", ""), forever("HTTP/9.9 999 \xff\r\n\r\n", ""),
		forever("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10\r\n\r\n0123456789", ""),
	)
}
