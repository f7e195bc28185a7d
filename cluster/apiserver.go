package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// apiServer starts kube-apiserver and checks whether it is ready.
type apiServer struct {
	binary  string
	dir     string // directory of the cluster
	etcdURL string
	pki     pki
	port    int
	gates   map[string]bool
	extra   []string

	accounts bool // a controller creates the account "default" of each namespace
}

func (a *apiServer) host() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)) }

func (a *apiServer) start() (*process, error) {
	args := []string{
		"--etcd-servers", a.etcdURL,
		"--bind-address", "127.0.0.1",
		// By default the server uses the address of the default route, which a machine may lack.
		"--advertise-address", "127.0.0.1",
		// The service "kubernetes" needs no endpoint, and a loopback address is not allowed in it.
		"--endpoint-reconciler-type", "none",
		"--secure-port", strconv.Itoa(a.port),
		"--cert-dir", a.pki.dir,
		"--tls-cert-file", a.pki.servingCert(),
		"--tls-private-key-file", a.pki.servingKey(),
		"--token-auth-file", a.pki.tokenFile(),
		"--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", a.pki.serviceAccount(),
		"--service-account-signing-key-file", a.pki.serviceAccount(),
		"--service-cluster-ip-range", "10.0.0.0/24",
		"--feature-gates", featureGates(a.gates),
	}
	if !a.accounts { // pods would wait for them
		args = append(args, "--disable-admission-plugins", "ServiceAccount")
	}
	return startProcess("kube-apiserver", a.binary, append(args, a.extra...), a.dir,
		filepath.Join(a.dir, "kube-apiserver.log"))
}

func featureGates(more map[string]bool) string {
	gates := map[string]bool{"ShardedListAndWatch": true}
	maps.Copy(gates, more)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		list = append(list, name+"="+strconv.FormatBool(gates[name]))
	}
	return strings.Join(list, ",")
}

// ready reports whether the server is ready and has created the namespace "default", which takes a moment longer.
func (a *apiServer) ready(ctx context.Context) error {
	return a.serves(ctx, "/readyz", "/api/v1/namespaces/default")
}

// serves returns an error unless the server answers a GET of each path with 200.
func (a *apiServer) serves(ctx context.Context, paths ...string) error {
	transport, err := a.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	token, err := os.ReadFile(a.pki.token())
	if err != nil {
		return err
	}
	client := http.Client{Transport: transport}
	for _, path := range paths {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.host()+path, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", path, resp.Status, b)
		}
	}
	return nil
}

func (a *apiServer) transport() (*http.Transport, error) {
	roots, err := a.roots()
	if err != nil {
		return nil, err
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}, nil
}

func (a *apiServer) roots() (*x509.CertPool, error) {
	ca, err := readCert(a.pki.caCert())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return roots, nil
}

// served returns the certificate that the server presents to a new connection.
func (a *apiServer) served(ctx context.Context) (*x509.Certificate, error) {
	roots, err := a.roots()
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", a.host())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	tlsConn, ok := conn.(*tls.Conn)
	if !ok {
		return nil, errors.New("not a TLS connection")
	}
	return tlsConn.ConnectionState().PeerCertificates[0], nil
}

// choosePort returns the preferred port if it is free, else a free one. Another process may take it before the server
// listens; the server then fails and the caller chooses another port.
func choosePort(preferred int) (int, error) {
	if preferred > 0 {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred))); err == nil {
			return preferred, l.Close()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("cannot find a free port: listener on %s", l.Addr())
	}
	return addr.Port, l.Close()
}
