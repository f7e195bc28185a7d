package console

import (
	"context"
	"net/http"

	"github.com/fairlead-io/fairlead/reconcile"
)

// maxFailures is how many failing objects of each controller are shown.
const maxFailures = 50

func (c *console) controllers(context.Context, *reader, *http.Request) (any, error) {
	return c.status().Controllers, nil
}

// failurePath is the page that says why an object of a controller does not move.
func failurePath(d reconcile.Description, f reconcile.FailureDescription) string {
	return whyPath(d.Kind, splitKey(f.Key))
}
