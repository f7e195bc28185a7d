//go:build unix

package store_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// BenchmarkSync fills a store through a source from a server in this process. The server is part of the measured cost
// (S1).
func BenchmarkSync(b *testing.B) {
	const n = 20_000
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	pods := corpus.NewPods(1, 300)
	err = server.Preload(gvr, n, func(i int, version string) apiserver.Encoded {
		return encodedPod(pods, i, version)
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, opt := range map[string]source.Option{
		"watchlist": func(*source.Config) {},
		"list":      func(c *source.Config) { c.NoWatchList, c.PageSize = true, -1 },
		"paged":     func(c *source.Config) { c.NoWatchList, c.PageSize = true, 500 },
	} {
		b.Run(name, func(b *testing.B) {
			start := cpuTime()
			for b.Loop() {
				ctx, stop := context.WithCancel(context.Background())
				s := store.New(store.Options{Namespaced: true})
				cfg := source.Config{REST: server.Config(), Resource: gvr}
				opt(&cfg)
				src, err := source.New(cfg, s.Sink)
				if err != nil {
					b.Fatal(err)
				}
				done := make(chan error)
				go func() { done <- src.Run(ctx) }()
				select {
				case <-s.Synced():
				case <-time.After(time.Minute):
					b.Fatal(s.Statuses())
				}
				if s.Len() != n {
					b.Fatal(s.Len())
				}
				stop()
				<-done
				s.Close()
			}
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N)/n, "cpu-ns/obj")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/obj")
		})
	}
}

func encodedPod(pods *corpus.Pods, i int, version string) apiserver.Encoded {
	o := object(pods.JSON(i, true))
	h := &o.Header
	raw := bytes.Replace(o.Raw, fmt.Appendf(nil, `"resourceVersion":"%s"`, h.ResourceVersion),
		fmt.Appendf(nil, `"resourceVersion":"%s"`, version), 1)
	labels := map[string]string{}
	for _, l := range h.Labels {
		labels[string(l.Key)] = string(l.Value)
	}
	return apiserver.Encoded{
		Namespace: string(h.Namespace), Name: string(h.Name), UID: string(h.UID), Labels: labels,
		JSON: raw,
	}
}
