package fairlead

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/profile"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/serve"
)

// pages are the pages of a runtime: its own, those of Handle, the profiles, and the guard of those below /debug/.
type pages struct {
	mux      *http.ServeMux
	profiles profile.Pages
	guarded  atomic.Pointer[http.Handler] // serves the pages below /debug/; nil: no guard

	mu    sync.Mutex
	debug []string // paths of the pages below /debug/, for the index
}

func newPages() *pages { return &pages{mux: http.NewServeMux(), debug: []string{profile.Root}} }

// add adds a page. It returns an error for a pattern that is malformed or taken.
func (p *pages) add(pattern string, page http.Handler) error {
	if panicked := protect.Call(func() { p.mux.Handle(pattern, page) }); panicked != nil {
		return fmt.Errorf("cannot serve %q: %v", pattern, panicked.Value)
	}
	if _, name, ok := strings.Cut(pattern, "/debug/"); ok && name != "" && name != "{$}" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.debug = append(p.debug, "/debug/"+name)
	}
	return nil
}

// guard wraps the pages below /debug/, instead of an earlier guard.
func (p *pages) guard(guard func(pages http.Handler) http.Handler) {
	guarded := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, true) }))
	p.guarded.Store(&guarded)
}

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if guarded := p.guarded.Load(); guarded != nil && (isDebug(r.URL.Path) || isDebug(path.Clean("/"+r.URL.Path))) {
		(*guarded).ServeHTTP(w, r)
		return
	}
	p.answer(w, r, false)
}

// answer serves the page that the pattern names. Pages of Handle below profile.Root take precedence.
func (p *pages) answer(w http.ResponseWriter, r *http.Request, guarded bool) {
	if !strings.HasPrefix(r.URL.Path, profile.Root) {
		p.mux.ServeHTTP(w, r)
		return
	}
	switch _, pattern := p.mux.Handler(r); {
	case strings.Contains(pattern, profile.Root):
		p.mux.ServeHTTP(w, r)
	case guarded || serve.IsLocal(r):
		p.profiles.ServeHTTP(w, r)
	default:
		text(w, http.StatusForbidden, "Profiles answer callers of the same machine, as through kubectl port-forward, or "+
			"those "+
			"that a guard lets pass: console.Options{GuardDebug: true}, or Runtime.GuardDebug.")
	}
}

func isDebug(at string) bool { return at == "/debug" || strings.HasPrefix(at, "/debug/") }

// index lists the pages below /debug/.
func (p *pages) index(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	all := slices.Sorted(slices.Values(p.debug))
	p.mu.Unlock()
	text(w, http.StatusOK, strings.Join(all, "\n"))
}

// page serves the result of describe, called at the time of the request.
func page(describe func() fmt.Stringer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := describe()
		if r.URL.Query().Get("format") == "json" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(d) // an error means that the caller has disconnected
			return
		}
		text(w, http.StatusOK, d.String())
	})
}
