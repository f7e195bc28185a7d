package console

import (
	"context"
	"net/http"

	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// maxFailures is how many failing objects of each controller are shown.
const maxFailures = 50

// controllerRow is one controller, with those of its objects that the reader may get.
type controllerRow struct {
	reconcile.Description
	Oldest                      *workRow // nil: nothing waits for a worker, or the reader may not see what
	Working                     []workRow
	Failures                    []failureRow
	HidesWork, HidesFailures    bool // there are others
	HidesOldest                 bool
	MoreWorking, MoreOfFailures bool // there are more than a page shows
}

type workRow struct {
	reconcile.WorkDescription
	Of why.Object
}

type failureRow struct {
	reconcile.FailureDescription
	Of why.Object
}

func (c *console) controllers(ctx context.Context, rd *reader, _ *http.Request) (any, error) {
	var rows []controllerRow
	seen := c.sight(rd)
	for _, d := range c.status().Controllers {
		row := controllerRow{Description: d}
		object := func(key string) why.Object {
			of := splitKey(key)
			of.Group, of.Kind = d.Of.Group, d.Of.Kind
			return of
		}
		see := func(key string, hides *bool) (of why.Object, may bool, err error) {
			of = object(key)
			may, err = seen.may(ctx, of)
			*hides = *hides || !may
			return of, may, err
		}
		if d.Oldest != nil {
			of, may, err := see(d.Oldest.Key, &row.HidesOldest)
			if err != nil {
				return nil, err
			}
			if may {
				row.Oldest = &workRow{*d.Oldest, of}
			}
		}
		for _, w := range d.Working {
			of, may, err := see(w.Key, &row.HidesWork)
			if err != nil {
				return nil, err
			}
			if may {
				row.Working = append(row.Working, workRow{w, of})
			}
		}
		for _, f := range d.Failures {
			of, may, err := see(f.Key, &row.HidesFailures)
			if err != nil {
				return nil, err
			}
			if may {
				row.Failures = append(row.Failures, failureRow{f, of})
			}
		}
		row.MoreWorking, row.MoreOfFailures = d.Running > len(d.Working), d.Failed > len(d.Failures)
		rows = append(rows, row)
	}
	return rows, nil
}
