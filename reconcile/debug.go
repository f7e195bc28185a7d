package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// DebugHandler serves the state and the failures of controllers, for /debug/controllers. list returns the controllers.
// They are sorted by cluster and name, their failures by age.
//
// Query parameters:
//
//   - format=json returns one JSON object per line, a [Description] each; an Accept header of application/json does the
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
		shown := make([]Description, len(all))
		for i, c := range all {
			shown[i] = c.describe(limit, pick)
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
		_, _ = fmt.Fprint(w, textOf(shown)) // fails if the client has disconnected
	})
}

// textOf renders the text page: the controllers, then their failures.
func textOf(shown []Description) string {
	if len(shown) == 0 {
		return "no controllers\n"
	}
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tab, "CONTROLLER\tKIND\tSTATE\tREADY\tWAITING\tRUNNING\tFAILED\tDECLARED")
	failures := 0
	for _, d := range shown {
		failures += len(d.Failures)
		_, _ = fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", d.title(), cmp.Or(d.Kind, "-"), d.State, d.Ready,
			d.Waiting, d.Running, d.Failed, d.At)
	}
	_ = tab.Flush()
	for _, d := range shown {
		if d.BlockedSince != nil {
			_, _ = fmt.Fprintf(&b, "\n%s, blocked: all workers have been at the same objects since %s\n", d.title(),
				clock(*d.BlockedSince))
		}
		for _, why := range append(slices.DeleteFunc([]string{d.Error}, func(s string) bool { return s == "" }),
			d.WaitsFor...) {
			_, _ = fmt.Fprintf(&b, "\n%s, %s: %s\n", d.title(), d.State, flat(why))
		}
	}
	if failures == 0 {
		return b.String()
	}
	_, _ = fmt.Fprintln(&b)
	_, _ = fmt.Fprintln(tab, "CONTROLLER\tKEY\tCLASS\tATTEMPTS\tSINCE\tLAST\tNEXT\tERROR")
	for _, d := range shown {
		for _, f := range d.Failures {
			next := f.Doing
			if f.Next != nil {
				next = clock(*f.Next)
			}
			_, _ = fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", d.title(), f.Key, f.Class, f.Attempts, clock(f.Since),
				clock(f.At), next, flat(f.Error))
		}
	}
	_ = tab.Flush()
	return b.String()
}

func (d Description) title() string {
	if d.Cluster == "" {
		return d.Name
	}
	return d.Cluster + "/" + d.Name
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// flat joins the lines of s.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }
