// Package servetest makes certificates for tests of TLS servers.
package servetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate returns a self-signed certificate for name and the loopback addresses, and its key, as PEM. With zero
// times it is valid for an hour from now.
func Certificate(tb testing.TB, name string, from, until time.Time) (cert, key []byte) {
	tb.Helper()
	if from.IsZero() {
		from, until = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// Write writes tls.crt and tls.key to a directory.
func Write(tb testing.TB, dir string, cert, key []byte) {
	tb.Helper()
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// Mount writes tls.crt and tls.key like the kubelet after a change of a Secret: to a new directory, to which it then
// points the symbolic link ..data of dir.
func Mount(tb testing.TB, dir, version string, cert, key []byte) {
	tb.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		tb.Fatal(err)
	}
	Write(tb, filepath.Join(dir, version), cert, key)
	for _, err := range []error{
		os.Symlink(version, filepath.Join(dir, "next")),
		os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "..data")),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
}
