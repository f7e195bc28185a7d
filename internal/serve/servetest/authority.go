package servetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	// PEM is the certificate of the authority, and File a file that holds it.
	PEM  []byte
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new Authority.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{File: filepath.Join(tb.TempDir(), "ca.crt"), key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(a.File, a.PEM, 0o600); err != nil {
		tb.Fatal(err)
	}
	return a
}

// Issue returns a certificate for name and the loopback addresses with the given usage. A zero time makes it valid for
// an hour.
func (a *Authority) Issue(tb testing.TB, name string, use x509.ExtKeyUsage, until time.Time) *tls.Certificate {
	tb.Helper()
	if until.IsZero() {
		until = time.Now().Add(time.Hour)
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: until,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Client returns a client that trusts the authority and always presents the certificate; nil: none. It follows no
// redirects.
func (a *Authority) Client(tb testing.TB, shown *tls.Certificate) *http.Client {
	tb.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if shown != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}
