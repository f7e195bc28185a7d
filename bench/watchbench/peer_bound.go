package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// bound is the lower bound for a cache. It reads the frames of a WatchList, finds key and version by the simplest
// search, and keeps the bytes. It does not recover from errors.
type bound struct {
	objects map[string][]byte
	cancel  context.CancelFunc
	done    chan error
}

func (b *bound) start(ctx context.Context, t target, handler func(event)) error {
	base := "/api/v1/pods"
	if gvr := widgetsResource; t.corpus == "widgets" {
		base = "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
	}
	client, err := rest.HTTPClientFor(t.cfg)
	if err != nil {
		return err
	}
	ctx, b.cancel = context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		t.cfg.Host+base+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return fmt.Errorf("server answered %s", res.Status)
	}
	b.objects, b.done = map[string][]byte{}, make(chan error, 1)
	synced := make(chan struct{})
	go func() {
		defer res.Body.Close()
		b.done <- b.read(res.Body, synced, handler)
	}()
	select {
	case <-synced:
		return nil
	case err := <-b.done:
		return fmt.Errorf("stream ended: %w", err)
	}
}

func (b *bound) read(body io.Reader, synced chan struct{}, handler func(event)) error {
	r := bufio.NewReaderSize(body, 1<<20)
	initial := true
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			if initial && bytes.Contains(line, []byte(`initial-events-end`)) {
				initial = false
				close(synced)
			}
			continue
		}
		version := member(line, `"resourceVersion":"`)
		b.objects[string(member(line, `"uid":"`))] = bytes.Clone(line)
		handler(event{string(version), initial})
	}
}

func member(line []byte, name string) []byte {
	i := bytes.Index(line, []byte(name))
	if i < 0 {
		return nil
	}
	rest := line[i+len(name):]
	return rest[:bytes.IndexByte(rest, '"')]
}

func (b *bound) whole(bool)         {}
func (b *bound) readAll() int       { return len(b.objects) }
func (b *bound) keys(int) []key     { return nil }
func (b *bound) get(key) error      { return nil }
func (b *bound) byIndex(string) int { return 0 }

func (b *bound) stop() {
	b.cancel()
	<-b.done
}
