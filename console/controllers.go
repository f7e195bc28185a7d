package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/why"
)

// maxFailures bounds the failing objects shown for each controller.
const maxFailures = 50

// controllerRow is one controller, with those objects that the reader may get.
type controllerRow struct {
	inspect.Controller
	Oldest                      *workRow // nil: no object waits for a worker, or the reader may not get it
	Working                     []workRow
	Failures                    []failureRow
	HidesWork, HidesFailures    bool // there are others, which the reader may not get
	HidesOldest                 bool
	MoreWorking, MoreOfFailures bool // there are more than a page shows
}

type workRow struct {
	inspect.Work
	Of why.Object
}

type failureRow struct {
	inspect.Failure
	Of why.Object
}

// controllers is the page of the controllers.
type controllers struct {
	status   func() inspect.Runtime
	resource pages.ResourceOf
}

func (p *controllers) page() pages.Page {
	return pages.Page{Name: "controllers", Title: "Controllers", Menu: true, Data: p.data, Shows: p.handle}
}

// handle reports whether a controller handles the kind.
func (p *controllers) handle(kind schema.GroupKind) bool {
	return slices.ContainsFunc(p.status().Controllers, func(c inspect.Controller) bool {
		return c.Of.Group == kind.Group && c.Of.Kind == kind.Kind
	})
}

func (p *controllers) data(ctx context.Context, rd *pages.Reader, _ *http.Request) (any, error) {
	var rows []controllerRow
	visible := pages.NewVisibility(rd, p.resource)
	for _, d := range p.status().Controllers {
		row := controllerRow{Controller: d}
		var failed error
		// see shows an object, or records that one is hidden.
		see := func(key string, hides *bool, show func(of why.Object)) {
			if failed != nil {
				return
			}
			of := splitKey(key)
			of.Group, of.Kind = d.Of.Group, d.Of.Kind
			may, err := visible.MayGet(ctx, of)
			if failed = err; err == nil && may {
				show(of)
			}
			*hides = *hides || !may
		}
		if d.Oldest != nil {
			see(d.Oldest.Key, &row.HidesOldest, func(of why.Object) { row.Oldest = &workRow{*d.Oldest, of} })
		}
		for _, w := range d.Working {
			see(w.Key, &row.HidesWork, func(of why.Object) { row.Working = append(row.Working, workRow{w, of}) })
		}
		for _, f := range d.Failures {
			see(f.Key, &row.HidesFailures, func(of why.Object) { row.Failures = append(row.Failures, failureRow{f, of}) })
		}
		if failed != nil {
			return nil, failed
		}
		row.MoreWorking, row.MoreOfFailures = d.Running > len(d.Working), d.Failed > len(d.Failures)
		rows = append(rows, row)
	}
	return rows, nil
}

// splitKey parses namespace/name.
func splitKey(key string) why.Object {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return why.Object{Namespace: namespace, Name: name}
	}
	return why.Object{Name: key}
}
