package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/scenario"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// TestControlPlane disturbs a real API server and etcd in several ways. After each of them the store has what the
// server lists.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"Changes", func(t *testing.T) { p.change(t, "first") }},
		{"Restart", p.restart},
		{"Compaction", p.compact},
		{"APIServerKilled", p.kill},
		{"EtcdPaused", p.pause},
		{"CertificateRotated", p.rotate},
		{"EtcdRestored", p.restore},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t); p.same(t) }) {
			return
		}
	}
	if _, found := p.recorder.Recording().Check(); len(found) > 0 {
		t.Errorf("the subscriber got wrong events: %v", found)
	}
}

type controlPlane struct {
	*cluster.Cluster
	client   *kubernetes.Clientset
	watched  *watchtest.Watched
	recorder *watchtest.Recorder
}

func newControlPlane(t *testing.T) *controlPlane {
	p := &controlPlane{Cluster: clustertest.Start(t, cluster.Options{})}
	var err error
	if p.client, err = kubernetes.NewForConfig(p.Config()); err != nil {
		t.Fatal(err)
	}
	p.watched, err = watchtest.Start(source.Config{
		REST: p.Config(), Resource: scenario.ConfigMaps, Namespaces: []string{"default"},
		Encoding: source.Protobuf, SilenceBudget: 2 * time.Second, BackoffCap: time.Second,
	}, store.Options{Namespaced: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.watched.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.recorder = p.watched.Record("main")
	return p
}

// try retries requests that a newly started server may refuse.
func (p *controlPlane) try(t *testing.T, what string, fn func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := fn(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("cannot %s: %v", what, err)
		}
	}
}

// change creates, updates and deletes objects.
func (p *controlPlane) change(t *testing.T, prefix string) {
	t.Helper()
	configMaps := p.client.CoreV1().ConfigMaps("default")
	for i := range 12 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		p.try(t, "create", func(ctx context.Context) error {
			_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		switch i % 3 {
		case 1:
			p.try(t, "update", func(ctx context.Context) error {
				_, err := configMaps.Update(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"},
				}, metav1.UpdateOptions{})
				return err
			})
		case 2:
			p.try(t, "delete", func(ctx context.Context) error {
				if err := configMaps.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					return err
				}
				return nil
			})
		}
	}
}

func (p *controlPlane) compact(t *testing.T) {
	if _, err := p.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.change(t, "compacted")
}

// restart saves a cache and starts it again from its file. The cache is synced when a bookmark of the server has
// confirmed its state. It sends no list except that of one object.
func (p *controlPlane) restart(t *testing.T) {
	dir := t.TempDir()
	for run := range 2 {
		cfg := rest.CopyConfig(p.Config())
		var lists atomic.Int64
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return listCounter{next, &lists}
		})
		cache, err := store.NewCache(store.CacheOptions{Config: cfg, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		h, err := cache.Open(store.Request{
			Resource: scenario.ConfigMaps, Namespaced: true,
			Options: []source.Option{source.Namespaces("default")},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done, began := make(chan error, 1), time.Now()
		go func() { done <- cache.Run(ctx) }()
		select {
		case <-h.Synced():
			t.Logf("run %d is synced after %s, with %d lists", run, time.Since(began), lists.Load())
		case <-time.After(testlimit.Wait):
			t.Errorf("run %d is not synced: %+v", run, h.Statuses())
		}
		if run > 0 && lists.Load() > 0 {
			t.Errorf("%d lists after a restart", lists.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.change(t, fmt.Sprint("away-", run))
		p.try(t, "elsewhere", func(ctx context.Context) error {
			_, err := p.client.CoreV1().Secrets("default").Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}, metav1.CreateOptions{})
			return err
		})
	}
}

// listCounter counts the requests that return whole objects.
type listCounter struct {
	next  http.RoundTripper
	lists *atomic.Int64
}

func (c listCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	if q := req.URL.Query(); q.Get("watch") == "" && q.Get("limit") != "1" || q.Get("sendInitialEvents") != "" {
		c.lists.Add(1)
	}
	return c.next.RoundTrip(req)
}

func (c listCounter) WrappedRoundTripper() http.RoundTripper { return c.next }

func (p *controlPlane) kill(t *testing.T) {
	if err := p.KillAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until(t, "the outage is reported", func() bool { return p.watched.Source.Status()[0].Phase == source.Degraded })
	if err := p.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.change(t, "killed")
}

func (p *controlPlane) pause(t *testing.T) {
	if err := p.PauseEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until(t, "a write hangs while etcd is paused", func() bool { // the signal takes a moment
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := p.client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "hangs-"}}, metav1.CreateOptions{})
		return err != nil
	})
	if err := p.ResumeEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.change(t, "resumed")
}

func (p *controlPlane) rotate(t *testing.T) {
	if err := p.RotateServingCertificate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.RestartAPIServer(t.Context()); err != nil { // so that connections are opened again
		t.Fatal(err)
	}
	p.change(t, "rotated")
}

func (p *controlPlane) restore(t *testing.T) {
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := p.Snapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		p.change(t, fmt.Sprint("undone-", i))
	}
	p.same(t)
	if err := p.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	p.until(t, "EPOCH is given", func() bool {
		for _, e := range p.recorder.Recording().Events {
			if e.Type == store.Epoch {
				return true
			}
		}
		return false
	})
	p.same(t)
	for key := range p.watched.Cached() {
		if strings.HasPrefix(key, "default/undone") {
			t.Errorf("%s is cached, but was rolled back", key)
		}
	}
	p.change(t, "restored")
}

// same waits until the store and the subscriber have what the server lists.
func (p *controlPlane) same(t *testing.T) {
	t.Helper()
	var want map[string]watchtest.State
	p.try(t, "list", func(ctx context.Context) error {
		list, err := p.client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		want = map[string]watchtest.State{}
		for _, cm := range list.Items {
			want["default/"+cm.Name] = watchtest.State{UID: string(cm.UID), Version: cm.ResourceVersion}
		}
		return nil
	})
	p.until(t, "the store has what the server lists", func() bool { return maps.Equal(want, p.watched.Cached()) })
	p.until(t, "the subscriber was given it", func() bool {
		folded, _ := p.recorder.Recording().Check()
		return maps.Equal(want, folded)
	})
}

// until polls a condition, since another process sends no signal.
func (p *controlPlane) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(testlimit.Wait)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain: %s; status %+v", what, p.watched.Source.Status())
		}
	}
}
