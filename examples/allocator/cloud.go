package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
)

// cloud is an HTTP server that hands out addresses and injects the failures of real clouds.
//
//	POST   /addresses          reserves an address; a repeated Idempotency-Key gets the same address
//	DELETE /addresses/{key}    releases the address of a key; an unknown key is not an error
type cloud struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	lose   float64           // the fraction of responses that are lost after the request has taken effect
	books  map[string]string // key → address of the current reservations
	next   int
	asked  int // number of reserve requests
	again  int // number of reserve requests with a known key
	lost   int // number of lost responses
	events func(string)
}

func newCloud(seed uint64, lose float64) *cloud {
	return &cloud{rnd: rand.New(rand.NewPCG(seed, 1)), lose: lose, books: map[string]string{}, events: func(string) {}}
}

func (c *cloud) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /addresses", func(w http.ResponseWriter, r *http.Request) {
		address, lost := c.reserve(r.Header.Get("Idempotency-Key"))
		if lost {
			panic(http.ErrAbortHandler) // the request has taken effect, but the client gets no response
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"address": address}) // fails if the client has disconnected
	})
	mux.HandleFunc("DELETE /addresses/{key}", func(w http.ResponseWriter, r *http.Request) {
		if c.release(r.PathValue("key")) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (c *cloud) reserve(key string) (address string, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	address, known := c.books[key]
	if known {
		c.again++
		c.events(fmt.Sprintf("cloud: asked again with a key that it knows: still %s", address))
	} else {
		c.next++
		address = fmt.Sprintf("203.0.113.%d", c.next)
		c.books[key] = address
	}
	return address, c.loses("to a reservation of " + address)
}

func (c *cloud) release(key string) (lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address, known := c.books[key]
	delete(c.books, key)
	return known && c.loses("to a release of "+address)
}

func (c *cloud) loses(what string) bool {
	if c.rnd.Float64() >= c.lose {
		return false
	}
	c.lost++
	c.events("cloud: an answer is lost, " + what)
	return true
}

// reserved returns the reserved addresses.
func (c *cloud) reserved() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Values(c.books))
}

// cloudClient calls a cloud.
type cloudClient struct {
	url  string
	http *http.Client
}

func (c *cloudClient) reserve(ctx context.Context, key string) (string, error) {
	body, err := c.do(ctx, http.MethodPost, "/addresses", key)
	if err != nil {
		return "", err
	}
	var answer struct{ Address string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("cannot read the cloud's answer: %w", err)
	}
	return answer.Address, nil
}

func (c *cloudClient) release(ctx context.Context, key, _ string) error {
	_, err := c.do(ctx, http.MethodDelete, "/addresses/"+url.PathEscape(key), "")
	return err
}

func (c *cloudClient) do(ctx context.Context, method, path, key string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(nil))
	if err != nil {
		return nil, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the cloud: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("cannot ask the cloud: it answers %s", response.Status)
	}
	return body, err
}
