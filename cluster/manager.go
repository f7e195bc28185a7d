package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
)

// withoutNodes turns off the controllers that act on nodes or on disks of nodes: there is no kubelet that would report
// to them, and they would evict and delete pods.
var withoutNodes = []string{
	"node-ipam-controller", "node-lifecycle-controller", "taint-eviction-controller", "device-taint-eviction-controller",
	"ttl-controller", "pod-garbage-collector-controller", "persistentvolume-attach-detach-controller",
	"persistentvolume-expander-controller", "selinux-warning-controller",
}

// controllerManager starts kube-controller-manager and checks whether it is ready.
type controllerManager struct {
	binary     string // empty: there is none
	dir        string // directory of the cluster
	kubeconfig string
	api        *apiServer
	port       int
}

func (m *controllerManager) start() (*process, error) {
	args := []string{
		"--kubeconfig", m.kubeconfig,
		"--bind-address", "127.0.0.1",
		"--secure-port", strconv.Itoa(m.port),
		"--tls-cert-file", m.api.pki.servingCert(),
		"--tls-private-key-file", m.api.pki.servingKey(),
		"--root-ca-file", m.api.pki.caCert(),
		"--service-account-private-key-file", m.api.pki.serviceAccount(),
		"--leader-elect=false",
		"--kube-api-qps", "500",
		"--kube-api-burst", "1000",
		"--controllers", "*,-" + strings.Join(withoutNodes, ",-"),
	}
	return startProcess("kube-controller-manager", m.binary, args, m.dir,
		filepath.Join(m.dir, "kube-controller-manager.log"))
}

// ready reports whether the controllers run. The account of the namespace "default" is the first thing that they create
// in a new control plane.
func (m *controllerManager) ready(ctx context.Context) error {
	transport, err := m.api.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) + "/healthz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz: %s: %s", resp.Status, b)
	}
	return m.api.serves(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
}
