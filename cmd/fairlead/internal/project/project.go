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

// Options configures New. All but Version and Library are required.
type Options struct {
	// Dir is the target directory. It must be empty, or missing with an existing parent.
	Dir string
	// Module is the path of its Go module, such as example.com/web.
	Module string
	// Group, Version and Kind name the first kind: for example web.example.com, v1alpha1 (the default), WebPage.
	Group, Version, Kind string
	// ClusterScoped makes a kind whose objects are in no namespace. Its reconciler is empty.
	ClusterScoped bool
	// Library is a directory with the source of Fairlead. Default: the project requires the version that this program
	// was built from, or uses the checkout that it was built from.
	Library string
}

// Made describes the written files.
type Made struct {
	Dir      string   // absolute
	Files    []string // slash-separated, relative to Dir, sorted; without the links in a chart
	Replaced string   // directory of Fairlead's source in go.mod; empty: go.mod requires a version
}

// DefaultVersion is the default version of a new API.
const DefaultVersion = "v1alpha1"

// New writes a project. It runs the Go command, which may download modules. After an error, no files remain. Errors
// match [ErrModule] and the other errors of this package.
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
	n.ClusterScoped, n.Example = o.ClusterScoped, !o.ClusterScoped
	kind := "example"
	if n.ClusterScoped {
		kind = "kind"
	}
	content := files{}
	for _, part := range []string{"project", "group", kind, "faults"} {
		if err := content.render(part, n); err != nil {
			return nil, err
		}
	}
	if err := addGenerated(content, n); err != nil {
		return nil, err
	}
	return createProject(ctx, content, dir, lib)
}

// createProject writes a project into a temporary directory beside dir, completes its go.mod there, and renames it.
func createProject(ctx context.Context, f files, dir string, lib library) (*Made, error) {
	no := func(err error) error { return fmt.Errorf("cannot write a project to %s: %w: %w", dir, ErrWrite, err) }
	beside := filepath.Dir(dir)
	old, err := os.ReadDir(dir)
	there := err == nil
	switch {
	case there && len(old) > 0:
		return nil, fmt.Errorf("cannot write a project to %s: %w: it has %s", dir, ErrNotEmpty, old[0].Name())
	case there:
		beside = dir // keep the directory itself, since a shell may use it as its working directory
	case !errors.Is(err, fs.ErrNotExist):
		return nil, no(err)
	}
	draft, err := os.MkdirTemp(beside, ".fairlead-new-")
	if err != nil {
		return nil, no(err)
	}
	defer func() { _ = os.RemoveAll(draft) }() // it does not exist after success
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
