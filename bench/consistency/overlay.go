package main

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
)

const (
	objects = 10_000 // objects in the store
	written = 1_000  // own writes that the watch has not delivered
	hot     = 256    // objects that are read; few, so that decoding is not measured
)

// rowC3 measures a Get without outstanding own writes, and with many.
func rowC3(s sizes, out io.Writer) error {
	empty, err := newOverlay(0)
	if err != nil {
		return err
	}
	defer empty.stop()
	laid, err := newOverlay(written)
	if err != nil {
		return err
	}
	defer laid.stop()
	results, err := rounds.Run(s.rounds,
		rounds.Peer{Name: "store, nothing laid over", Run: func() ([]float64, error) { return empty.gets(s.gets, 0) }},
		rounds.Peer{
			Name: fmt.Sprintf("store, %d own writes laid over, others read", written),
			Run:  func() ([]float64, error) { return laid.gets(s.gets, objects-hot) },
		},
		rounds.Peer{Name: fmt.Sprintf("store, %d own writes laid over, those read", written), Run: func() ([]float64, error) {
			return laid.gets(s.gets, 0)
		}},
	)
	if err != nil {
		return err
	}
	rounds.Print(out, fmt.Sprintf("C3: Get of one of %d ConfigMaps, typed", objects),
		[]string{"ns of Store.Get", "ns of client.Get"}, results)
	return nil
}

type overlay struct {
	c    *client.Client
	h    *store.Handle
	stop func()
}

// newOverlay returns a store of ConfigMaps with n own writes that the watch has not delivered.
func newOverlay(n int) (*overlay, error) {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		return nil, err
	}
	for i := range objects {
		if _, err := server.Put(&corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name(i)}, Data: map[string]string{"n": fmt.Sprint(i)},
		}); err != nil {
			return nil, err
		}
	}
	cached, err := store.NewCache(store.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme, Mapper: mapper()})
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{Config: server.Config(), Cache: cached, Mapper: mapper()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cached.Run(ctx) }()
	h, err := store.AcquireFor[corev1.ConfigMap](cached)
	if err != nil {
		cancel()
		return nil, err
	}
	<-h.Synced()
	server.HoldEvents(apiserver.Match{Resource: "configmaps"})
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name(i)}}
		if err := client.Modify(ctx, c, cm, func(cm *corev1.ConfigMap) error {
			cm.Data["n"] = "own"
			return nil
		}); err != nil {
			cancel()
			return nil, err
		}
	}
	return &overlay{c, h, func() { c.Close(); h.Release(); cancel(); <-done; server.Close() }}, nil
}

func name(i int) string { return fmt.Sprintf("map-%05d", i) }

// gets makes n Gets of the hot objects, which start at number first. It returns the ns per Get of the store and of the
// client.
func (o *overlay) gets(n, first int) ([]float64, error) {
	keys := make([]client.Key, hot)
	for i := range keys {
		keys[i] = client.Key{Namespace: "a", Name: name(first + i)}
	}
	ctx := context.Background()
	for _, key := range keys {
		if _, err := client.Get[corev1.ConfigMap](ctx, o.c, key); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	for i := range n {
		if _, ok := o.h.Get(keys[i%hot]); !ok {
			return nil, fmt.Errorf("%v is not there", keys[i%hot])
		}
	}
	bare := time.Since(began)
	began = time.Now()
	for i := range n {
		if _, err := client.Get[corev1.ConfigMap](ctx, o.c, keys[i%hot]); err != nil {
			return nil, err
		}
	}
	typed := time.Since(began)
	return []float64{float64(bare.Nanoseconds()) / float64(n), float64(typed.Nanoseconds()) / float64(n)}, nil
}
