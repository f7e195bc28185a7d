package pages

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/access"
)

// startPath redirects to the first page that the reader may see.
const startPath = "/console/"

// links returns the entries of the menu: the pages that the reader may see. If the reader may see only the part of some
// namespaces, the link leads to a single namespace or to the choice.
func (s *Site) links(ctx context.Context, rd *Reader, at *url.URL) (all []Link) {
	for _, p := range s.menu {
		path := p.path()
		switch {
		case p.Scope != nil:
			if Allowed(p.Scope.May(ctx, rd, "")) {
				break
			}
			in := p.Scope.allowed(ctx, rd)
			if here := at.Query().Get("namespace"); slices.Contains(in, here) {
				in = []string{here}
			}
			if len(in) == 0 {
				continue
			}
			if len(in) == 1 {
				path += "?" + url.Values{"namespace": in}.Encode()
			}
		case p.Allow == nil && !Allowed(rd.MayRun(ctx, p.Name)):
			continue
		}
		all = append(all, Link{Name: p.Name, Title: p.Title, Path: path})
	}
	return all
}

// allowed returns the namespaces in which the reader has the right. If all namespaces are served, it checks that of the
// reader's service account and those with objects. It checks at most maxAsked.
func (s *Scope) allowed(ctx context.Context, rd *Reader) (all []string) {
	candidates := s.Namespaces.Served
	if len(candidates) == 0 && s.Namespaces.InUse != nil {
		candidates = s.Namespaces.InUse()
	}
	candidates = slices.Clone(candidates)
	if own, ok := strings.CutPrefix(rd.Name(), "system:serviceaccount:"); ok {
		if own, _, ok = strings.Cut(own, ":"); ok && s.Namespaces.Serve(own) {
			candidates = slices.Insert(candidates, 0, own)
		}
	}
	for i, namespace := range candidates[:min(len(candidates), maxAsked)] {
		if !slices.Contains(candidates[:i], namespace) && rd.May(ctx, s.Access(namespace)) == nil {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return all
}

// land redirects to the first page that the reader may see.
func (s *Site) land(w http.ResponseWriter, r *http.Request) {
	rd, ok := s.enter(w, r)
	if !ok {
		return
	}
	pages := s.links(access.WithClient(r.Context(), r), rd, r.URL)
	http.Redirect(w, r, pages[0].Path, http.StatusSeeOther) // every reader may see the page Why
}

// choiceData lists the namespaces of a page that a reader may see.
type choiceData struct {
	Path       string
	Namespaces []Link
}

// choose asks for the namespace to show.
func (s *Site) choose(w http.ResponseWriter, r *http.Request, rd *Reader, p *Page) {
	d := choiceData{Path: r.URL.Path}
	for _, namespace := range p.Scope.allowed(access.WithClient(r.Context(), r), rd) {
		q := r.URL.Query()
		q.Set("namespace", namespace)
		d.Namespaces = append(d.Namespaces, Link{Title: namespace, Path: r.URL.Path + "?" + q.Encode()})
	}
	s.Render.page(w, http.StatusForbidden, s.view(r, rd, &Page{Name: "namespace", Title: "Select a namespace"}, d))
}
