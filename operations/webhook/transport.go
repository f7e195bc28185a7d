package webhook

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// tlsMaterial distinguishes connection pools. The zero value means the system's CAs and no client certificate.
type tlsMaterial struct {
	cert, key, ca []byte // PEM
	serverName    string
	withSystem    bool // ca adds to the system's CAs instead of replacing them
}

func (m tlsMaterial) fingerprint() [32]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d:%s,%d:%s,%d:%s,%d:%s,%t", len(m.cert), m.cert, len(m.key), m.key, len(m.ca), m.ca,
		len(m.serverName), m.serverName, m.withSystem && len(m.ca) > 0)
	return [32]byte(h.Sum(nil))
}

func (m tlsMaterial) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: m.serverName}
	if len(m.ca) > 0 {
		pool := x509.NewCertPool()
		if m.withSystem {
			if system, err := x509.SystemCertPool(); err == nil {
				pool = system
			}
		}
		if !pool.AppendCertsFromPEM(m.ca) {
			return nil, &credentialsError{
				Field: "spec.tls.caSecretRef",
				Err:   errors.New("cannot use ca.crt: it has no certificate in PEM"),
			}
		}
		config.RootCAs = pool
	}
	if len(m.cert) > 0 {
		pair, err := tls.X509KeyPair(m.cert, m.key)
		if err != nil {
			return nil, &credentialsError{Field: "spec.auth.mtls", Err: fmt.Errorf("cannot use tls.crt and tls.key: %w", err)}
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (t *transports) newTransport(namespace string, config *tls.Config) *http.Transport {
	tr := &http.Transport{
		DialContext:            t.dialer(namespace, t.guard.DialContext),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // unpacked in readBody, with a bound
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
	if t.proxy != nil { // never from the environment
		tr.Proxy = http.ProxyURL(t.proxy)
		tr.DialContext = t.dialer(namespace,
			(&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	}
	return tr
}

// guarded checks the host of a request that a proxy resolves.
func (t *transports) guarded(rt *http.Transport) http.RoundTripper {
	if t.proxy == nil {
		return rt
	}
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		if err := t.guard.CheckURL(req.URL); err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		return rt.RoundTrip(req)
	})
}

// fenced calls the fence just before the request is sent.
func (t *transports) fenced(namespace string, rt http.RoundTripper) http.RoundTripper {
	if t.fence == nil {
		return rt
	}
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		if err := t.fence(namespace); err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, fmt.Errorf("%w: %w", ErrFenced, err)
		}
		return rt.RoundTrip(req)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// bare removes the URL that net/http adds to an error. It may be long, and contains data of the caller.
func bare(err error) error {
	for {
		var wrapped *url.Error
		if !errors.As(err, &wrapped) {
			return err
		}
		err = wrapped.Err
	}
}
