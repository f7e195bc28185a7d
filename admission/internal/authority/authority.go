// Package authority manages the certificate authorities of webhooks. It reads them from a Secret, selects the one that
// signs, and decides when to create the next one. It does no I/O and reads no clock.
//
//	set, broken := authority.Parse(secret.Data)
//	if plan := set.Plan(now, lifetimes); plan.Stage { … } // add a new authority to the others; it signs later
//	signer, settled := set.Signer(now, lifetimes, since)
//	leaf, err := signer.Issue(now, hosts, lifetimes.Leaf)
//
// An authority has no state besides its certificate and key. It is trusted, as part of the bundle, from its creation
// until its end, and its certificates do not outlive it. A client that trusts the bundle therefore trusts every served
// certificate.
package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Backdate is how long before its creation a certificate becomes valid, to tolerate slow clocks.
const Backdate = 5 * time.Minute

// Authority is a certificate authority. Without a key it is only trusted and cannot sign.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New returns a new authority that is valid from now.
func New(now time.Time, name string, validity time.Duration) (Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Authority{}, fmt.Errorf("cannot make an authority: %w", err)
	}
	template, err := certificate(now, now.Add(validity), name)
	if err != nil {
		return Authority{}, fmt.Errorf("cannot make an authority: %w", err)
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return Authority{}, fmt.Errorf("cannot make an authority: %w", err)
	}
	return Authority{Certificate: cert, key: key}, nil
}

func certificate(now, end time.Time, name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-Backdate), NotAfter: end,
	}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Issue returns a certificate with a new key for the given host names or addresses. It expires no later than the
// authority.
func (a Authority) Issue(now time.Time, hosts []string, validity time.Duration) (*tls.Certificate, error) {
	if !a.Signs(now) {
		return nil, fmt.Errorf("cannot issue a certificate: authority %s does not sign any more", a.ID())
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a certificate: %w", err)
	}
	end := now.Add(validity)
	if end.After(a.Certificate.NotAfter) {
		end = a.Certificate.NotAfter
	}
	template, err := certificate(now, end, "webhooks")
	if err != nil {
		return nil, fmt.Errorf("cannot issue a certificate: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf, err := sign(template, a.Certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// ID identifies the authority. It is also a part of the names of its entries in a Secret.
func (a Authority) ID() string {
	sum := sha256.Sum256(a.Certificate.Raw)
	return hex.EncodeToString(sum[:6])
}

// Made returns the time of creation.
func (a Authority) Made() time.Time { return a.Certificate.NotBefore.Add(Backdate) }

// Ended reports whether the authority has expired, and with it all certificates that it signed.
func (a Authority) Ended(now time.Time) bool { return now.After(a.Certificate.NotAfter) }

// Signs reports whether the authority can sign.
func (a Authority) Signs(now time.Time) bool {
	return a.key != nil && !a.Ended(now) && !now.Before(a.Certificate.NotBefore)
}

// Signed reports whether this authority signed a certificate.
func (a Authority) Signed(leaf *x509.Certificate) bool {
	return bytes.Equal(leaf.AuthorityKeyId, a.Certificate.SubjectKeyId) && leaf.CheckSignatureFrom(a.Certificate) == nil
}

// Trusted returns the same authority without its key.
func (a Authority) Trusted() Authority { return Authority{Certificate: a.Certificate} }

// parse parses one authority. key is nil for an authority that is only trusted.
func parse(cert, key []byte) (Authority, error) {
	der, err := block(cert, "CERTIFICATE")
	if err != nil {
		return Authority{}, err
	}
	var a Authority
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		return Authority{}, err
	}
	if !a.Certificate.IsCA {
		return Authority{}, errors.New("the certificate is not that of an authority")
	}
	if key == nil {
		return a, nil
	}
	if der, err = block(key, "EC PRIVATE KEY"); err != nil {
		return Authority{}, fmt.Errorf("its key: %w", err)
	}
	if a.key, err = x509.ParseECPrivateKey(der); err != nil {
		return Authority{}, fmt.Errorf("its key: %w", err)
	}
	if !a.key.PublicKey.Equal(a.Certificate.PublicKey) {
		return Authority{}, errors.New("its key is that of another certificate")
	}
	return a, nil
}

func block(text []byte, kind string) ([]byte, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != kind {
		return nil, fmt.Errorf("there is no PEM block %q", kind)
	}
	return b.Bytes, nil
}

func (a Authority) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

func (a Authority) keyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
