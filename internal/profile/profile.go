// Package profile serves the profiles of the process over HTTP: goroutines, heap, CPU and the other profiles of
// runtime/pprof, in the formats of go tool pprof and go tool trace. It does the same as net/http/pprof except for the
// command line. It does not import that package, whose init would add unguarded profiles to http.DefaultServeMux in
// every program that links Fairlead.
package profile

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Root is the path prefix of the profiles.
const Root = "/debug/pprof/"

const (
	defaultSeconds = 30
	maxSeconds     = 60
	// writeTime bounds the time to write a finished profile to the client.
	writeTime = 30 * time.Second
)

// timed holds the profiles that are recorded during the request.
var timed = map[string]func(w *bytes.Buffer) (stop func(), err error){
	"profile": func(w *bytes.Buffer) (func(), error) { return pprof.StopCPUProfile, pprof.StartCPUProfile(w) },
	"trace":   func(w *bytes.Buffer) (func(), error) { return trace.Stop, trace.Start(w) },
}

// Pages serves the profiles, one at a time, because each slows down the process. The caller must restrict access. The
// zero value is ready to use. It is safe for concurrent use.
type Pages struct{ busy sync.Mutex }

// ServeHTTP handles GET for Root, the list of profiles, and for Root with the name of a profile. Query parameters are
// debug=1 or 2 for text, gc=1 for a garbage collection first, and seconds, up to 60, for profile and trace.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Root)
	record, isTimed := timed[name]
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a profile is only read", http.StatusMethodNotAllowed)
		return
	case name == "":
		list(w)
		return
	case !isTimed && pprof.Lookup(name) == nil:
		http.Error(w, "there is no such profile", http.StatusNotFound)
		return
	}
	seconds, err := number(r, "seconds", defaultSeconds, 1, maxSeconds)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	debug, err := number(r, "debug", 0, 0, 2)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !p.busy.TryLock() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another profile is being made", http.StatusServiceUnavailable)
		return
	}
	var made bytes.Buffer
	if isTimed {
		// The server may have a shorter write timeout.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + writeTime))
		err = recordFor(r, time.Duration(seconds)*time.Second, record, &made)
	} else {
		if r.URL.Query().Get("gc") == "1" {
			runtime.GC()
		}
		err = pprof.Lookup(name).WriteTo(&made, debug)
	}
	p.busy.Unlock()
	if err != nil { // other code in the process is recording one
		http.Error(w, fmt.Sprintf("cannot make the profile: %v", err), http.StatusServiceUnavailable)
		return
	}
	kind := "application/octet-stream"
	if !isTimed && debug > 0 {
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = made.WriteTo(w) // the reader is gone if this fails
}

// recordFor records until the time is over or the client has disconnected.
func recordFor(
	r *http.Request, d time.Duration, start func(*bytes.Buffer) (func(), error), to *bytes.Buffer,
) error {
	stop, err := start(to)
	if err != nil {
		return err
	}
	defer stop()
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-r.Context().Done():
	}
	return nil
}

func list(w http.ResponseWriter) {
	names := []string{}
	for name := range timed {
		names = append(names, name)
	}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, name := range names {
		_, _ = fmt.Fprintln(w, Root+name) // the reader is gone if this fails
	}
}

// number parses an integer query parameter.
func number(r *http.Request, name string, otherwise, least, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("cannot read %s: want a number from %d to %d", name, least, most)
	}
	return n, nil
}
