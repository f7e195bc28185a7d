package live

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"

	"github.com/fairlead-io/fairlead/internal/simulation/live/pod"
)

// account is a service account of the subject, which then runs as in a Pod.
type account struct {
	pod *pod.Pod
	tls *tls.Config // of the API server: a program in a Pod does not know another scheme than https
}

// newAccount writes the files of a service account to a new directory in dir.
func newAccount(dir string) (*account, error) {
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	if dir, err = os.MkdirTemp(dir, "serviceaccount-"); err != nil {
		return nil, err
	}
	write := func(name string, text []byte) error { return os.WriteFile(filepath.Join(dir, name), text, 0o600) }
	if err := errors.Join(
		write("ca.crt", chain), write("token", []byte("simulate")), write("namespace", []byte("default")),
	); err != nil {
		return nil, err
	}
	p, err := pod.New(dir)
	if err != nil {
		return nil, err
	}
	return &account{pod: p, tls: &tls.Config{
		Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}}, nil
}

// certificate returns how the API server is served to a process, or nil if that needs no https.
func (a *account) certificate() *tls.Config {
	if a == nil {
		return nil
	}
	return a.tls
}
