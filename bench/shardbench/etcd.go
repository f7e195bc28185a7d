package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"

	"github.com/fairlead-io/fairlead/cluster"
)

// etcd is a client of the etcd of a control plane, by its JSON gateway.
type etcd struct{ http *http.Client }

// openEtcd connects to the etcd of a cluster. The path of the cluster's directory must be short enough for a socket
// in it.
func openEtcd(c *cluster.Cluster) *etcd {
	var dialer net.Dialer
	return &etcd{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", filepath.Join(c.Dir(), "etcd.sock"))
		},
		MaxIdleConnsPerHost: 64,
	}}}
}

func (e *etcd) close() { e.http.CloseIdleConnections() }

// pair is a key and its value.
type pair struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// put writes pairs in one transaction.
func (e *etcd) put(ctx context.Context, pairs []pair) error {
	type operation struct {
		Put pair `json:"request_put"`
	}
	all := make([]operation, len(pairs))
	for i, p := range pairs {
		all[i].Put = p
	}
	return e.post(ctx, "/v3/kv/txn", map[string]any{"success": all}, nil)
}

// changed counts the objects with a prefix that were written after a revision.
func (e *etcd) changed(ctx context.Context, prefix string, revision int64) (int, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	var answer struct {
		Kvs []struct {
			Revision int64 `json:"mod_revision,string"`
		} `json:"kvs"`
	}
	err := e.post(ctx, "/v3/kv/range", map[string]any{
		"key": []byte(prefix), "range_end": end, "keys_only": true, "min_mod_revision": fmt.Sprint(revision + 1),
	}, &answer)
	return len(answer.Kvs), err
}

func (e *etcd) post(ctx context.Context, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s: %.200s", resp.Status, b)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(b, answer)
}
