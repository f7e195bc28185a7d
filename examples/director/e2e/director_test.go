package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/install"
)

// director is a running program, with a controller of operations and a receiver of their calls.
type director struct {
	t        *testing.T
	ctx      context.Context
	url      string
	receiver *httptest.Server

	mu   sync.Mutex
	keys map[string]map[string]bool // path → idempotency keys of the calls
}

func setup(t *testing.T) *director {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	d := &director{t: t, ctx: ctx, keys: map[string]map[string]bool{}}
	config, namespace := env.Config(t), env.Namespace(t)
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	d.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only the keys matter
		d.mu.Lock()
		if d.keys[r.URL.Path] == nil {
			d.keys[r.URL.Path] = map[string]bool{}
		}
		d.keys[r.URL.Path][r.Header.Get("Idempotency-Key")] = true
		d.mu.Unlock()
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(d.receiver.Close)

	types := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(types), corev1.AddToScheme(types)); err != nil {
		t.Fatal(err)
	}
	rt := fairlead.New(config, fairlead.WithScheme(types))
	o := executor.Options{Calls: rt.Calls(), AllowTargets: []string{"127.0.0.1"}}
	for _, kind := range []string{"Operation", "Webhook", "Secret"} {
		gvk := v1alpha1.GroupVersion.WithKind(kind)
		if kind == "Secret" {
			gvk = corev1.SchemeGroupVersion.WithKind(kind)
		}
		h, err := rt.Cache().Acquire(gvk, cache.Namespaces(namespace))
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "Operation":
			o.Operations = h.Store
		case "Webhook":
			o.Webhooks = h.Store
		default:
			o.Secrets = h.Store
		}
	}
	e, err := executor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	rt.Add("executor", e.Run)
	var running sync.WaitGroup
	running.Go(func() {
		if err := rt.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	p := directorProgram.Start(t, program.Options{Config: config, Args: []string{
		"--listen=127.0.0.1:0", "--database=" + filepath.Join(t.TempDir(), "director.db"), "--namespace=" + namespace,
	}})
	line := p.Expect("director is listening")
	d.url = "http://" + line[strings.LastIndex(line, "address=")+len("address="):]
	return d
}

func (d *director) do(method, path, body string, headers ...string) (*http.Response, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.ctx, method, d.url+path, bytes.NewBufferString(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp, string(text)
}

// application is what the director answers with.
type application struct {
	ID    string
	Ready bool
	Error string
}

// register registers an application whose webhook is at a path of the receiver.
func (d *director) register(path string) (id string) {
	d.t.Helper()
	resp, body := d.do("POST", "/applications", `{"name":"shop","webhook":{"url":"`+d.receiver.URL+path+`"}}`)
	var app application
	if err := json.Unmarshal([]byte(body), &app); err != nil || resp.StatusCode != http.StatusCreated || !app.Ready {
		d.t.Fatalf("register: %d %s", resp.StatusCode, body)
	}
	return app.ID
}

// effects returns how many calls with keys of their own a path of the receiver got. A call may be repeated with its
// key.
func (d *director) effects(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.keys[path])
}

func TestUnregisterAsync(t *testing.T) {
	d := setup(t)
	id := d.register("/cleanup")
	resp, body := d.do("DELETE", "/applications/"+id, "", "Prefer", "respond-async")
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Preference-Applied") != "respond-async" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	at := resp.Header.Get("Location")
	var v operations.View
	for v.Status != operations.Succeeded { // good from the first moment
		resp, body := d.do("GET", at, "")
		if err := json.Unmarshal([]byte(body), &v); err != nil || resp.StatusCode != http.StatusOK ||
			v.Status == operations.Failed {
			t.Fatalf("%s: %d %s", at, resp.StatusCode, body)
		}
	}
	if resp, body := d.do("GET", "/applications/"+id, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("who has seen the end sees what it did: %d %s", resp.StatusCode, body)
	}
	if n := d.effects("/cleanup"); n != 1 {
		t.Errorf("%d keys of calls, want 1", n)
	}
}

func TestUnregisterAndWait(t *testing.T) {
	d := setup(t)
	resp, body := d.do("DELETE", "/applications/"+d.register("/cleanup"), "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Operation-Status") != "SUCCEEDED" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestUnregisterFails(t *testing.T) {
	d := setup(t)
	id := d.register("/refuse")
	resp, body := d.do("DELETE", "/applications/"+id, "", "Prefer", "wait=30")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Operation-Status") != "FAILED" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	_, body = d.do("GET", "/applications/"+id, "")
	var app application
	if err := json.Unmarshal([]byte(body), &app); err != nil || !app.Ready || app.Error == "" {
		t.Errorf("marked with the error: %s", body)
	}
}

func TestConcurrentUnregistrations(t *testing.T) {
	d := setup(t)
	id := d.register("/cleanup")
	var callers sync.WaitGroup
	codes := make(chan int, 8)
	for range 8 {
		callers.Go(func() {
			resp, _ := d.do("DELETE", "/applications/"+id, "", "Prefer", "respond-async")
			codes <- resp.StatusCode
		})
	}
	callers.Wait()
	close(codes)
	counts := map[int]int{}
	for code := range codes {
		counts[code]++
	}
	// One that comes after the end finds nothing.
	if counts[http.StatusAccepted] != 1 || counts[http.StatusConflict]+counts[http.StatusNotFound] != 7 {
		t.Errorf("answers %v", counts)
	}
}
