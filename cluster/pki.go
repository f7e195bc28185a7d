package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caLife      = 10 * 365 * 24 * time.Hour
	servingLife = 365 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
	clockSkew   = time.Hour
)

// pki is the directory of certificates and credentials. Existing files are kept, so kubeconfigs stay valid.
type pki struct{ dir string }

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p pki) caCert() string         { return p.path("ca.crt") }
func (p pki) caKey() string          { return p.path("ca.key") }
func (p pki) servingCert() string    { return p.path("apiserver.crt") }
func (p pki) servingKey() string     { return p.path("apiserver.key") }
func (p pki) serviceAccount() string { return p.path("service-account.key") }
func (p pki) token() string          { return p.path("token") }
func (p pki) tokenFile() string      { return p.path("tokens.csv") }

// ensure creates missing files and renews a serving certificate that expires soon.
func (p pki) ensure() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	if missing(p.caCert()) || missing(p.caKey()) {
		if err := p.newCA(); err != nil {
			return err
		}
	}
	if missing(p.servingKey()) || p.servingExpires().Before(time.Now().Add(renewBefore)) {
		if err := p.newServing(); err != nil {
			return err
		}
	}
	if missing(p.serviceAccount()) {
		key, err := newKey()
		if err != nil {
			return err
		}
		if err := writeKey(p.serviceAccount(), key); err != nil {
			return err
		}
	}
	if missing(p.token()) || missing(p.tokenFile()) {
		token := rand.Text() + rand.Text()
		return errors.Join(
			writeFile(p.tokenFile(), []byte(token+`,fairlead-admin,fairlead-admin,"system:masters"`+"\n")),
			writeFile(p.token(), []byte(token)),
		)
	}
	return nil
}

func (p pki) newCA() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	template := certificate("fairlead-ca", caLife)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	// A serving certificate of the previous authority would not be trusted.
	_ = os.Remove(p.servingCert())
	return errors.Join(writeKey(p.caKey(), key), writePEM(p.caCert(), "CERTIFICATE", der))
}

// newServing creates a new key and certificate. A running server reloads both when they change.
func (p pki) newServing() error { return p.issueServing(servingLife) }

func (p pki) issueServing(life time.Duration) error {
	ca, err := readCert(p.caCert())
	if err != nil {
		return err
	}
	caKey, err := readKey(p.caKey())
	if err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	template := certificate("kube-apiserver", life)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	return errors.Join(writeKey(p.servingKey(), key), writePEM(p.servingCert(), "CERTIFICATE", der))
}

// servingExpires returns the expiry of the serving certificate, or the zero time if there is no usable one.
func (p pki) servingExpires() time.Time {
	cert, err := readCert(p.servingCert())
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

func certificate(name string, life time.Duration) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: name, Organization: []string{"fairlead"}},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(life),
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key) // kube-apiserver does not accept an elliptic key in PKCS #8 for accounts
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func readCert(path string) (*x509.Certificate, error) {
	der, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("cannot parse %s: %w", path, err)
	}
	return key, nil
}

func readPEM(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("cannot parse %s: no PEM block", path)
	}
	return block.Bytes, nil
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// writeFile replaces path atomically, readable by the owner only. A reader sees the old or the new content.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
