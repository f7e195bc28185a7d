package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// DebugHandler serves the state and the failures of controllers, for /debug/controllers. list returns the controllers.
// They are sorted by cluster and name, their failures by age.
//
// Query parameters:
//
//   - format=json returns one JSON object per line and controller; an Accept header of application/json does the
//     same.
//   - controller, key and class select what is shown.
//   - limit bounds the failures on the page; the default is 1000, and 0 means all.
//
// The page contains keys and error texts: serve it only to operators.
func DebugHandler(list func() []*Controller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limit := 1000
		if s := q.Get("limit"); s != "" {
			var err error
			if limit, err = strconv.Atoi(s); err != nil || limit < 0 {
				http.Error(w, "cannot read limit: want a number of at least 0", http.StatusBadRequest)
				return
			}
		}
		if limit == 0 {
			limit = -1
		}
		pick := func(k Key, class Class) bool {
			return (!q.Has("key") || q.Get("key") == k.String()) && (!q.Has("class") || q.Get("class") == string(class))
		}
		var all []*Controller
		if list != nil {
			all = slices.Clone(list())
		}
		all = slices.DeleteFunc(all, func(c *Controller) bool {
			return q.Has("controller") && q.Get("controller") != c.name
		})
		slices.SortFunc(all, func(a, b *Controller) int {
			return cmp.Or(cmp.Compare(a.from.Cluster, b.from.Cluster), cmp.Compare(a.name, b.name))
		})
		shown := make(inspect.Controllers, len(all))
		for i, c := range all {
			shown[i] = c.inspect.describe(limit, pick)
			if limit > 0 {
				limit = max(0, limit-len(shown[i].Failures))
			}
		}
		if q.Get("format") == "json" || slices.Contains(r.Header.Values("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/x-ndjson")
			enc := json.NewEncoder(w)
			for _, d := range shown {
				if enc.Encode(d) != nil {
					return // the client has disconnected
				}
			}
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = fmt.Fprint(w, shown) // fails if the client has disconnected
	})
}
