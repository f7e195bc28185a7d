package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestShards: the page and /api/shards report the group to readers with the right to pages about the program. The page
// links to the consoles of the members.
func TestShards(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	load := 1200
	want := group.Report{
		Group: "operators/gateways", Of: 4, Moving: []group.Move{},
		Members: []group.MemberReport{
			{Name: "one", Slots: []int{0, 1}, Address: "https://10.0.0.7:8443", Load: &load},
			{Name: "two", Slots: []int{2, 3}, Address: "javascript://x/%0aalert(1)", Uncovered: []string{"Gateway"}},
		},
	}
	rt := fairlead.New(server.Config(), fairlead.WithConsole(console.Options{
		Authorizer: readers{"admin": func(console.Access) bool { return true }},
		Shards:     func(context.Context) (*group.Report, error) { return &want, nil },
	}))
	get := func(path, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		rec := httptest.NewRecorder()
		rt.Handler().ServeHTTP(rec, r)
		return rec
	}
	for token, status := range map[string]int{
		"": http.StatusUnauthorized, "unknown": http.StatusForbidden, "admin": http.StatusOK,
	} {
		if got := get("/api/shards", token); got.Code != status {
			t.Errorf("reader %q gets %d, want %d: %s", token, got.Code, status, got.Body)
		}
	}
	var got group.Report
	if err := json.Unmarshal(get("/api/shards", "admin").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	page := get("/console/shards", "admin").Body.String()
	for _, text := range []string{
		`<a href="https://10.0.0.7:8443/console/" rel="noreferrer"`, "1\u202f200", "unknown",
		"two is older than other members: Gateway in its 2 slots have no worker",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %s:\n%s", text, page)
		}
	}
	if strings.Contains(page, "javascript:") || strings.Contains(page, "This page shows this replica") {
		t.Errorf("the page links to a script, or says that it is about one replica:\n%s", page)
	}
	if page = get("/console/sources", "admin").Body.String(); !strings.Contains(page, "This page shows this replica") {
		t.Errorf("another page does not say that it is about one replica:\n%s", page)
	}
}
