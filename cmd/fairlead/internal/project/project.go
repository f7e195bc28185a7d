package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Options of a new project. All but Version and Library are required.
type Options struct {
	// Dir is where it is written: a directory that is empty, or is not there while its parent is.
	Dir string
	// Module is the path of its Go module, such as example.com/web.
	Module string
	// Group, Version and Kind are those of its first kind: web.example.com, v1alpha1 by default, WebPage.
	Group, Version, Kind string
	// Library is a directory with the source of Fairlead that the project uses. By default it requires the version that
	// this program was built from; a program that was built from a checkout has the project use that.
	Library string
}

// Made says what was written.
type Made struct {
	Dir      string   // absolute
	Files    []string // slash-separated, below Dir, in order; without the links to some of them in a chart
	Replaced string   // the directory of Fairlead's source that go.mod names; empty: it names a version
}

// DefaultVersion is the version of a new API.
const DefaultVersion = "v1alpha1"

// New writes a project. It calls the Go command, which fetches what is not in its cache. Errors are typed, see
// [ErrModule] and the others; then nothing is left of it.
func New(ctx context.Context, o Options) (*Made, error) {
	o.Version = cmp.Or(o.Version, DefaultVersion)
	if err := errors.Join(checkModule(o.Module), checkKind(o.Group, o.Version, o.Kind)); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %q: %w: %w", o.Dir, ErrWrite, err)
	}
	lib, err := findLibrary(o.Library)
	if err != nil {
		return nil, err
	}
	n := names{
		Module: o.Module, Name: nameOf(o.Module), Go: lib.language, LibraryVersion: lib.version, Replace: lib.dir,
	}.of(o.Group, o.Version, o.Kind)
	content := files{}
	for _, part := range []string{"project", "group", "kind"} {
		if err := content.render(part, n); err != nil {
			return nil, err
		}
	}
	if err := content.addGenerated(n); err != nil {
		return nil, err
	}
	return content.create(ctx, dir, lib)
}

// create writes a project into a directory beside, completes its go.mod there, and gives it its name.
func (f files) create(ctx context.Context, dir string, lib library) (*Made, error) {
	no := func(err error) error { return fmt.Errorf("cannot write a project to %s: %w: %w", dir, ErrWrite, err) }
	beside := filepath.Dir(dir)
	old, err := os.ReadDir(dir)
	there := err == nil
	switch {
	case there && len(old) > 0:
		return nil, fmt.Errorf("cannot write a project to %s: %w: it has %s", dir, ErrNotEmpty, old[0].Name())
	case there:
		beside = dir // it stays the directory that it is, as a shell may be in it
	case !errors.Is(err, fs.ErrNotExist):
		return nil, no(err)
	}
	draft, err := os.MkdirTemp(beside, ".fairlead-new-")
	if err != nil {
		return nil, no(err)
	}
	defer func() { _ = os.RemoveAll(draft) }() // what is not there any more is what was wanted
	if err := os.Chmod(draft, 0o755); err != nil {
		return nil, no(err)
	}
	if err := errors.Join(f.write(draft), link(draft)); err != nil {
		return nil, no(err)
	}
	if err := tidy(ctx, draft); err != nil {
		return nil, err
	}
	if there {
		err = moveInto(dir, draft)
	} else {
		err = os.Rename(draft, dir)
	}
	if err != nil {
		return nil, no(err)
	}
	return &Made{Dir: dir, Files: f.names(), Replaced: lib.dir}, nil
}
