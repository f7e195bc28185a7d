package flow

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// debugHandler serves the fibers. Engine.DebugHandler describes its parameters.
func debugHandler(fibers func() iter.Seq[Info]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		longer, limit := time.Duration(-1), 1000
		var err error
		if s := q.Get("longer"); s != "" {
			if longer, err = time.ParseDuration(s); err != nil {
				http.Error(w, fmt.Sprintf("cannot read longer: %v", err), http.StatusBadRequest)
				return
			}
		}
		if s := q.Get("limit"); s != "" {
			if limit, err = strconv.Atoi(s); err != nil || limit < 0 {
				http.Error(w, "cannot read limit: want a number of at least 0", http.StatusBadRequest)
				return
			}
		}
		matches := func(i Info) bool {
			return i.For > longer && (!q.Has("key") || q.Get("key") == i.Key) && (!q.Has("flow") || q.Get("flow") == i.Flow) &&
				(!q.Has("status") || q.Get("status") == i.Status.String())
		}
		write, flush := textWriter(w)
		if q.Get("format") == "json" || slices.Contains(r.Header.Values("Accept"), "application/json") {
			write, flush = jsonWriter(w)
		}
		shown := 0
		for i := range fibers() {
			if !matches(i) {
				continue
			}
			if shown++; limit > 0 && shown > limit {
				break
			}
			if write(i) != nil {
				return // the client has disconnected
			}
		}
		flush()
	})
}

func jsonWriter(w http.ResponseWriter) (write func(Info) error, flush func()) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	return func(i Info) error { return enc.Encode(i) }, func() {}
}

func textWriter(w http.ResponseWriter) (write func(Info) error, flush func()) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := false
	write = func(i Info) error {
		if !header {
			header = true
			if _, err := fmt.Fprintln(tab, "ID\tPATH\tKEY\tEPOCH\tSTATUS\tFOR\tNEXT CHECK\tATTEMPT\tTRAIL"); err != nil {
				return err
			}
		}
		status, next := i.Status.String(), "-"
		if i.Why != "" {
			status += " (" + i.Why + ")"
		}
		if i.Stopping {
			status += ", stopping"
		}
		if !i.Until.IsZero() {
			next = i.Until.UTC().Format(time.RFC3339)
		}
		_, err := fmt.Fprintf(tab, "%d\t%s\t%s\t%d\t%s\t%v\t%s\t%d\t%s\n", i.ID, i.Path, i.Key, i.Epoch, status,
			i.For.Round(time.Millisecond), next, i.Attempt, i.Trail)
		return err
	}
	return write, func() {
		if !header {
			_, _ = fmt.Fprintln(tab, "no fibers") // fails like Flush below
		}
		_ = tab.Flush() // fails only if the client has disconnected
	}
}
