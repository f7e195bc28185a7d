package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is the interval at which the files of a certificate are read.
const lookEvery = 5 * time.Second

// Certificate is a certificate and its key, read from files. It is read again when the files change, whether they are
// overwritten, renamed, or replaced through the symbolic link of a mounted Secret. If the new pair is unusable, the
// previous one stays in use. Certificate is a prometheus.Collector. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	seen              [sha256.Size]byte // hash of the last contents, usable or not
	reloads           *prometheus.CounterVec
	expiry            prometheus.Collector
}

// LoadCertificate reads the files. Run reads them again when they change.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certificate{
		certFile: certFile, keyFile: keyFile, log: log,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_certificate_reloads_total",
			Help: "Changes of the files of the certificate, by whether they could be used.",
		}, []string{"result"}),
	}
	for _, result := range []string{"success", "failure"} { // a counter must start at 0 for its first increase to show
		c.reloads.WithLabelValues(result)
	}
	c.expiry = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_http_certificate_expiry_timestamp_seconds", Help: "When the certificate that is served expires.",
	}, func() float64 { return float64(c.current.Load().Leaf.NotAfter.Unix()) })
	pair, seen, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("cannot load the certificate of %s and %s: %w", certFile, keyFile, err)
	}
	c.seen = seen
	c.current.Store(pair)
	return c, nil
}

// read returns the pair in the files, and a hash of their contents or of the read error.
func (c *Certificate) read() (*tls.Certificate, [sha256.Size]byte, error) {
	cert, certErr := os.ReadFile(c.certFile)
	key, keyErr := os.ReadFile(c.keyFile)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), err
	}
	seen := sha256.Sum256(bytes.Join([][]byte{cert, key}, []byte{0}))
	pair, err := tls.X509KeyPair(cert, key) // with its Leaf
	return &pair, seen, err
}

// Run checks the files for changes until ctx is done.
func (c *Certificate) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look loads the files if they have changed, and uses the pair if it is valid. It logs each change once.
func (c *Certificate) look(ctx context.Context) {
	pair, seen, err := c.read()
	if seen == c.seen {
		return
	}
	c.seen = seen
	if err == nil {
		err = worse(pair, c.current.Load(), time.Now())
	}
	if err != nil {
		c.reloads.WithLabelValues("failure").Inc()
		c.log.ErrorContext(ctx, "cannot use the changed certificate, the one before stays", "cert", c.certFile,
			"key", c.keyFile,
			"expires", c.current.Load().Leaf.NotAfter, "error", err)
		return
	}
	c.current.Store(pair)
	c.reloads.WithLabelValues("success").Inc()
	c.log.InfoContext(ctx, "certificate changed", "cert", c.certFile, "expires", pair.Leaf.NotAfter)
}

// worse returns an error if the pair is not valid now and the previous one is.
func worse(pair, before *tls.Certificate, now time.Time) error {
	if now.After(before.Leaf.NotAfter) {
		return nil
	}
	switch {
	case now.After(pair.Leaf.NotAfter):
		return fmt.Errorf("it has expired on %v", pair.Leaf.NotAfter)
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("it is good from %v on", pair.Leaf.NotBefore)
	default:
		return nil
	}
}

// Config returns a TLS configuration with the certificate: TLS 1.2 and newer, HTTP/2 and HTTP/1.1.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// Describe implements prometheus.Collector.
func (c *Certificate) Describe(ch chan<- *prometheus.Desc) {
	c.reloads.Describe(ch)
	c.expiry.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Certificate) Collect(ch chan<- prometheus.Metric) {
	c.reloads.Collect(ch)
	c.expiry.Collect(ch)
}
