package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// A unix socket's path must fit into a fixed field of the kernel: 108 bytes on Linux, 104 on other systems.
const socketPathLimit = 100

// etcdServer starts etcd and sends requests to it.
type etcdServer struct {
	binary string
	dir    string // directory of the cluster
	socket string
	noSync bool
	extra  []string

	http *http.Client
}

func newEtcd(binary, dir string, noSync bool, extra []string) (*etcdServer, error) {
	e := &etcdServer{binary: binary, dir: dir, noSync: noSync, extra: extra, socket: filepath.Join(dir, "etcd.sock")}
	if len(e.socket) > socketPathLimit {
		parent := "" // the default
		if len(filepath.Join(os.TempDir(), "fl0123456789", "etcd.sock")) > socketPathLimit {
			parent = "/tmp"
		}
		short, err := os.MkdirTemp(parent, "fl") // mode 0700
		if err != nil {
			return nil, err
		}
		e.socket = filepath.Join(short, "etcd.sock")
	}
	var dialer net.Dialer
	e.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", e.socket)
		},
		// Requests are few, and none may use a connection to an etcd that has been restarted since.
		DisableKeepAlives: true,
	}}
	return e, nil
}

func (e *etcdServer) dataDir() string { return filepath.Join(e.dir, "etcd") }
func (e *etcdServer) url() string     { return "unix://" + e.socket }

func (e *etcdServer) start() (*process, error) {
	args := []string{
		"--data-dir", e.dataDir(),
		"--listen-client-urls", e.url(),
		"--advertise-client-urls", e.url(),
		"--listen-peer-urls", "unix://" + e.socket + ".peer",
		"--log-level", "warn",
	}
	if e.noSync {
		args = append(args, "--unsafe-no-fsync")
	}
	return startProcess("etcd", e.binary, append(args, e.extra...), e.dir, filepath.Join(e.dir, "etcd.log"))
}

// remove removes the files outside the cluster's directory.
func (e *etcdServer) remove() {
	_ = os.Remove(e.socket)
	_ = os.Remove(e.socket + ".peer")
	if short := filepath.Dir(e.socket); short != e.dir {
		_ = os.Remove(short)
	}
}

// ready reports whether etcd serves writes.
func (e *etcdServer) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", nil)
	if err != nil {
		return err
	}
	_, err = e.do(req)
	return err
}

// revision returns the newest revision, which is the newest resource version of Kubernetes.
func (e *etcdServer) revision(ctx context.Context) (int64, error) {
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	// The range of a key that does not exist suffices, since only the header matters.
	query := map[string]any{"key": base64.StdEncoding.EncodeToString([]byte{0}), "count_only": true}
	if err := e.post(ctx, "/v3/kv/range", query, &answer); err != nil {
		return 0, err
	}
	if answer.Header.Revision < 1 {
		return 0, fmt.Errorf("etcd answers revision %d", answer.Header.Revision)
	}
	return answer.Header.Revision, nil
}

// compact removes the history before revision and returns when the space has been released.
func (e *etcdServer) compact(ctx context.Context, revision int64) error {
	return e.post(ctx, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(revision), "physical": true}, nil)
}

// post calls etcd's JSON gateway, which avoids a dependency on an etcd client.
func (e *etcdServer) post(ctx context.Context, path string, body map[string]any, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	b, err = e.do(req)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(b, answer)
}

func (e *etcdServer) do(req *http.Request) ([]byte, error) {
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd answers %s: %s", resp.Status, bytes.TrimSpace(b))
	}
	return b, nil
}
