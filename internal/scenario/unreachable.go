package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// unreachableScenarios are about DNS names and certificates that are wrong for a while.
func unreachableScenarios() []Scenario {
	unreachable := func(name, message string, wrong func(*Run) dial) Scenario {
		return Scenario{
			Name: name, Section: conditions, Fill: 5,
			Holds: "TLS and DNS errors become a typed condition […] with the message, since when, and the age of the cached " +
				"data; recovers by itself",
			Server: func(o *apiserver.Options) { o.TLS = true },
			Before: func(r *Run) {
				bad := wrong(r)
				r.Cfg.REST.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if r.astray.Load() {
						return bad(ctx, network, address)
					}
					return r.Server.Dial(ctx, network, address)
				}
			},
			Script: func(r *Run) {
				r.Sync()
				begin := time.Now()
				r.astray.Store(true)
				r.Server.DropConnections()
				r.Condition(source.ReasonDisconnected)
				r.Pass(10 * time.Minute)
				s := r.Status()
				r.Expect(strings.Contains(s.Message, message), "the message is %q", s.Message)
				r.Expect(s.Staleness(time.Now()) > 9*time.Minute, "the cache is said to be %s old", s.Staleness(time.Now()))
				r.Expect(s.Since.Sub(begin) < time.Minute, "the condition is said to be since %s after its beginning",
					s.Since.Sub(begin))
				r.astray.Store(false)
				r.Put("o1", "after")
				r.Within("it recovers", 3*time.Minute, r.AtRest)
				r.Condition(source.ReasonWatching)
			},
		}
	}
	return []Scenario{
		unreachable("name does not resolve", "no such host", func(*Run) dial {
			return func(_ context.Context, network, address string) (net.Conn, error) {
				return nil, &net.OpError{
					Op: "dial", Net: network,
					Err: &net.DNSError{Err: "no such host", Name: address, IsNotFound: true},
				}
			}
		}),
		unreachable("certificate of another name", "certificate is valid for elsewhere.example", func(r *Run) dial {
			return r.impostor("elsewhere.example", time.Now().Add(240*time.Hour))
		}),
		unreachable("certificate has expired", "certificate has expired", func(r *Run) dial {
			return r.impostor("localhost", time.Now().Add(-time.Hour))
		}),
		unreachable("connection ends within the handshake", "EOF", func(*Run) dial {
			return func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					_, _ = server.Read(make([]byte, 64<<10)) // reads and ignores the request
					_ = server.Close()
				}()
				return client, nil
			}
		}),
	}
}

// impostor connects to a server whose certificate has a trusted authority, but this name and validity.
func (r *Run) impostor(name string, until time.Time) dial {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: until.Add(-1000 * time.Hour), NotAfter: until, DNSNames: []string{name},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	r.Cfg.REST.CAData = append(r.Cfg.REST.CAData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	cfg := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
	}
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			_ = tls.Server(server, cfg).HandshakeContext(context.Background()) // the client refuses the certificate
			_ = server.Close()
		}()
		return client, nil
	}
}
