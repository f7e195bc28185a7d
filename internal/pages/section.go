package pages

import (
	"context"
	"html/template"
	"io/fs"
	"iter"
	"log/slog"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/why"
)

// Section is a group of pages that another package adds to a console.
type Section interface {
	// Open returns the contents for a console. It fails if the section is incomplete.
	Open(Host) (*Contents, error)
}

// Host is the console of a section.
type Host struct {
	Log   *slog.Logger
	Cache *cache.Cache // of the program; nil without a cluster
	// Explain returns why an object makes no progress, as far as the reader may know. It returns ErrNothing for an
	// object that is missing or hidden.
	Explain func(ctx context.Context, rd *Reader, of why.Object) (why.Answer, error)
}

// Contents are the parts of a section. Each of them is optional.
type Contents struct {
	// Templates has a file for each page, named after it, and parts.html with parts that they share. Funcs are further
	// functions for them.
	Templates fs.FS
	Funcs     template.FuncMap

	Pages   []Page
	Actions []Action
	// Whole are rights that together permit reading of all pages about the whole program.
	Whole []access.Access

	Overview *Overview
	Plots    []Plot
	// Blocked returns engines of the section whose workers are blocked.
	Blocked func() []Blocked
	// Fibers are the live fibers of the section's engine.
	Fibers func() iter.Seq[flow.Info]
	// Objects describes the section's objects to the page Why.
	Objects *Objects
	// Run is background work, named Task. It returns when its context ends.
	Task string
	Run  func(context.Context) error
}

// Overview is the part of a section on the overview. Readers with the right in all namespaces of Scope see it.
type Overview struct {
	Scope *Scope
	Data  func(ctx context.Context) ([]Tile, []Breakdown, error)
}

// Tile is a number on the overview.
type Tile struct {
	ID, Title, Path string
	Level           string // "", "warn" or "bad"
	Value           int
	Text            string
}

// Breakdown is a list of numbers on the overview.
type Breakdown struct {
	ID, Title string
	Rows      []BreakdownRow
}

// BreakdownRow is one number. Label is the value of the property by which a Breakdown groups.
type BreakdownRow struct {
	ID, Path    string
	Count       int
	Text, Label string
}

// Plot is a chart of the last hour: the growth of the counter Of, per second or by growth of the counter By.
type Plot struct{ Title, Unit, Of, By string }

// Objects describes objects to the page Why.
type Objects struct {
	KindHint, NameHint string
	// Rename returns the name of the object that a reader has named in another way, or the name itself.
	Rename func(name string) string
	// Link returns the page of an object and its title, or empty strings.
	Link func(of why.Object) (path, title string)
}
