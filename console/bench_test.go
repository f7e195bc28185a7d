package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// BenchmarkOperations100k makes a page of the list of 100,000 operations, as it is opened and as it is kept up to date.
func BenchmarkOperations100k(b *testing.B) {
	const n = 100_000
	c := &console{live: newLive(), shown: newShared(), now: time.Now}
	x := newIndex(store.New(store.Options{}), nil)
	begun := time.Now()
	for i := range n {
		r := &row{
			key: cache.Key{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("app-%d", i)}, id: fmt.Sprintf("%032x", i),
			correlation: fmt.Sprintf("correlation-%d", i), opType: v1alpha1.OperationUpdate, category: fmt.Sprintf("category-%d", i%20),
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
	x.take([]store.Event{{Type: store.Synced}})
	c.index = x
	pages, err := parsePages()
	if err != nil {
		b.Fatal(err)
	}
	c.Options.Operations = &Operations{Operations: x.store}
	for name, query := range map[string]string{
		"All": "", "Text": "?q=correlation-77777", "NothingFound": "?q=no+such+text", "Filtered": "?status=IN_PROGRESS&category=category-10&namespace=team-10",
		"Last": "?from=99950",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("GET", "/console/operations"+query, nil)
			for b.Loop() {
				data, err := c.operations(context.Background(), nil, r)
				if err != nil {
					b.Fatal(err)
				}
				var out bytes.Buffer
				p := &page{Title: "Operations", Name: "operations", Data: data, Live: (&url.URL{Path: "/"}).Path}
				if err := pages["operations"].ExecuteTemplate(&out, "layout", p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
