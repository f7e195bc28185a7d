package console

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// BenchmarkOperations100k serves the list of 100,000 operations.
func BenchmarkOperations100k(b *testing.B) {
	const n = 100_000
	none := store.New(store.Options{})
	x := indexOf(none)
	begun := time.Now()
	for i := range n {
		r := &row{
			key:         cache.Key{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("app-%d", i)},
			id:          fmt.Sprintf("%032x", i),
			correlation: fmt.Sprintf("correlation-%d", i), opType: v1alpha1.OperationUpdate,
			category: fmt.Sprintf("category-%d", i%20),
			resource: operations.Resource{Type: "App", ID: fmt.Sprint(i)}, status: operations.InProgress,
			created: begun.Add(-time.Duration(i) * time.Second), total: 3,
		}
		if i%10 > 0 {
			r.status, r.finished = operations.Succeeded, begun
		}
		r.words = words(r)
		if x.rows == nil {
			x.rows = map[cache.Key]*row{}
		}
		x.put(r)
	}
	x.apply(none, []store.Event{{Type: store.Synced}})
	sessions, err := pages.NewSessions(pages.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	site := pages.NewSite(pages.SiteOptions{
		Readers: pages.NewReaders(access.Anonymous{}, sessions, true, nil), Render: renderOf(b), Live: pages.NewLive(),
		Health: func() *pages.Health { return &pages.Health{} }, Log: slog.New(slog.DiscardHandler),
	})
	served := &pages.Namespaces{}
	list := &operationsPage{
		index: x, lists: &pages.Scope{Namespaces: served, Access: listOperations},
		updates: &pages.Scope{Namespaces: served, Access: updateOperations},
	}
	site.AddPage(list.page())
	handler := site.Handler()
	for name, query := range map[string]string{
		"All": "", "Text": "?q=correlation-77777", "NothingFound": "?q=no+such+text",
		"Filtered": "?status=IN_PROGRESS&category=category-10&namespace=team-10",
		"Last":     "?from=99950",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/console/operations"+query, nil)
			r.Host = "localhost"
			for b.Loop() {
				w := httptest.NewRecorder()
				if handler.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}

// renderOf returns the Render of the section.
func renderOf(t testing.TB) *pages.Render {
	t.Helper()
	render, err := pages.NewRender(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	own, err := fs.Sub(templates, "templates")
	if err == nil {
		err = render.Add(own, funcs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return render
}
