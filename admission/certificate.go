package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
)

// certificate is the served certificate. renew must be called by one goroutine at a time; other methods are safe for
// concurrent use.
type certificate struct {
	now func() time.Time

	served atomic.Pointer[tls.Certificate]
	since  map[string]time.Time // since when each authority is in all configurations, by id; used by renew only
}

// renew replaces the certificate if it is due, and reports whether it did. All configurations must contain all
// authorities of the set.
func (c *certificate) renew(set authority.Set, l authority.Lifetimes, hosts []string) (signer string, renewed bool,
	_ error,
) {
	now := c.now()
	since := map[string]time.Time{}
	for _, a := range set {
		since[a.ID()] = now
		if at, known := c.since[a.ID()]; known {
			since[a.ID()] = at
		}
	}
	c.since = since
	by, settled, ok := set.Signer(now, l, since)
	if !ok {
		return "", false, errors.New("cannot issue a certificate: no authority is valid now; check the clock")
	}
	if !set.Renew(now, c.leaf(), by, settled) {
		return "", false, nil
	}
	cert, err := by.Issue(now, hosts, l.Leaf)
	if err != nil {
		return "", false, err
	}
	c.served.Store(cert)
	return by.ID(), true, nil
}

// leaf returns the parsed certificate, or nil if there is none yet.
func (c *certificate) leaf() *x509.Certificate {
	if cert := c.served.Load(); cert != nil {
		return cert.Leaf
	}
	return nil
}

// config returns the configuration of a server that always serves the current certificate.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.served.Load(), nil },
	}
}

// err returns an error if the certificate has expired.
func (c *certificate) err() error {
	if leaf := c.leaf(); leaf != nil && c.now().After(leaf.NotAfter) {
		return fmt.Errorf("the certificate expired at %v", leaf.NotAfter)
	}
	return nil
}
