package pages

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/access"
)

// Page is one kind of page. The Site checks the right of the reader before each call of Data. Without Allow and Scope,
// it requires the right to pages about the whole program.
type Page struct {
	Name  string // of the template
	Title string
	Path  string // pattern below /console/; default: Name
	Menu  bool   // the menu has an entry for the page
	// Allow checks the reader's right.
	Allow func(ctx context.Context, rd *Reader, r *http.Request) error
	// Scope is a right that readers may have in some namespaces only. The parameter namespace of the URL selects one.
	Scope *Scope
	Data  func(ctx context.Context, rd *Reader, r *http.Request) (any, error)
	// State returns a number that changes with the content. Nil: the page is rendered to detect changes.
	State func() uint64
	// AllReplicas means that the page about the whole program shows all of its replicas.
	AllReplicas bool
	// Shows reports whether the page shows a kind. Nil: it shows none.
	Shows func(kind schema.GroupKind) bool
}

func (p *Page) path() string {
	if p.Path != "" {
		return "/console/" + p.Path
	}
	return "/console/" + p.Name
}

// ofProcess reports whether the page shows what only this process knows.
func (p *Page) ofProcess() bool {
	return p.Data != nil && p.Allow == nil && p.Scope == nil && !p.AllReplicas
}

// allow checks the session and the right to the page.
func (p *Page) allow(ctx context.Context, rd *Reader, r *http.Request) error {
	if err := rd.Stays(ctx); err != nil {
		return err
	}
	switch {
	case p.Allow != nil:
		return p.Allow(ctx, rd, r)
	case p.Scope != nil:
		return p.Scope.allow(ctx, rd, r)
	default:
		return rd.MayRun(ctx, p.Name)
	}
}

// Anybody allows a page to all readers.
func Anybody(context.Context, *Reader, *http.Request) error { return nil }

// Namespaces are the namespaces whose objects a section shows.
type Namespaces struct {
	// Served are their names. Empty: all namespaces.
	Served []string
	// InUse returns namespaces with objects, to choose from if all are served.
	InUse func() []string
}

// Serve reports whether the objects of a namespace are shown.
func (n *Namespaces) Serve(namespace string) bool {
	return len(validation.IsDNS1123Label(namespace)) == 0 &&
		(len(n.Served) == 0 || slices.Contains(n.Served, namespace))
}

// served returns the namespaces. An empty name means all of the cluster.
func (n *Namespaces) served() []string {
	if len(n.Served) > 0 {
		return n.Served
	}
	return []string{""}
}

// Scope is a right in each of the namespaces of a section.
type Scope struct {
	Namespaces *Namespaces
	Access     func(namespace string) access.Access
}

// All returns the accesses that together are the right in all namespaces.
func (s *Scope) All() (all []access.Access) {
	for _, namespace := range s.Namespaces.served() {
		all = append(all, s.Access(namespace))
	}
	return all
}

// May checks the right in a namespace, or in all of them if it is empty.
func (s *Scope) May(ctx context.Context, rd *Reader, namespace string) error {
	if namespace != "" {
		return rd.May(ctx, s.Access(namespace))
	}
	for _, a := range s.All() {
		if err := rd.May(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// errWhich is for readers who lack the right in some namespace and have named none.
var errWhich = errors.New("you may not see all namespaces: name one")

func (s *Scope) allow(ctx context.Context, rd *Reader, r *http.Request) error {
	namespace := r.URL.Query().Get("namespace")
	if namespace != "" && !s.Namespaces.Serve(namespace) {
		return ErrNothing
	}
	err := s.May(ctx, rd, namespace)
	if namespace == "" && Refused(err) && !Unknown(err) {
		return errWhich
	}
	return err
}
