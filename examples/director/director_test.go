package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a director until the test ends, on an API server in this process, and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	resources := apiserver.DefaultResources()
	for _, crd := range v1alpha1.CRDs() {
		resources = append(resources, apiserver.Resource{
			Group: crd.Spec.Group, Version: v1alpha1.GroupVersion.Version, Resource: crd.Spec.Names.Plural,
			Kind: crd.Spec.Names.Kind, Namespaced: true, Subresources: []string{"status"},
		})
	}
	server, err := apiserver.New(apiserver.Options{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	c := config{listen: "127.0.0.1:0", database: filepath.Join(t.TempDir(), "director.db"), namespace: "team-a"}
	ctx, stop := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, server.Config(), c, slog.New(slog.DiscardHandler), func(at net.Addr) { listening <- at })
	}()
	select {
	case at := <-listening:
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return "http://" + at.String()
	case err := <-ended:
		stop()
		t.Fatalf("the director does not listen: %v", err)
		return ""
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	url := start(t)
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/applications", "{", 400, "cannot read the body"},
		{"POST", "/applications", `{"name":""}`, 422, "name is required"},
		{"POST", "/applications", `{"name":"a","webhook":{"url":"ftp://x"}}`, 422, "http or https"},
		{"POST", "/applications", `{"name":"a","webhook":{"url":"http://x","mode":"Later"}}`, 422, "Sync or Async"},
		{"GET", "/applications/none", "", 404, "there is no application none"},
		{"DELETE", "/applications/none", "", 404, "there is no application none"},
		{"GET", "/operations/Application/none", "", 404, "not found"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, url+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tc.status || !strings.Contains(string(body), tc.want) ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, resp.StatusCode, body)
		}
	}
}
