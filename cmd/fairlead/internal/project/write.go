package project

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// links are symbolic links. Helm reads files outside of a chart only through links.
var links = map[string]string{"chart/files": "../deploy"}

// link creates the links in a directory created by us.
func link(dir string) error {
	for name, target := range links {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.FromSlash(target), at); err != nil {
			return err
		}
	}
	return nil
}

// names returns the sorted paths.
func (f files) names() []string { return slices.Sorted(maps.Keys(f)) }

// write writes all files to a directory created by us.
func (f files) write(dir string) error {
	for _, name := range f.names() {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, f[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moveInto moves the files of a draft into the otherwise empty directory around it. After an error it removes the moved
// files.
func moveInto(dir, draft string) error {
	entries, err := os.ReadDir(draft)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if err := os.Rename(filepath.Join(draft, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			for _, moved := range entries[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, moved.Name())))
			}
			return err
		}
	}
	return nil
}

// replace writes files in an existing project: all or none. New files must not exist yet.
func (f files) replace(dir string) error {
	type change struct{ draft, at, kept string }
	var changes []change
	var made []string // created directories
	defer func() {
		for _, d := range slices.Backward(made) {
			_ = os.Remove(d) // fails if the directory is not empty
		}
	}()
	undo := func(done []change) {
		for _, c := range done { // restore the old files, and remove the new ones
			if c.kept != "" {
				_ = os.Rename(c.kept, c.at)
			} else {
				_ = os.Remove(c.at)
			}
		}
	}
	clean := func() {
		for _, c := range changes {
			_ = os.Remove(c.draft)
			if c.kept != "" {
				_ = os.Remove(c.kept)
			}
		}
	}
	defer clean()
	for _, name := range f.names() {
		at := filepath.Join(dir, filepath.FromSlash(name))
		for _, d := range missing(filepath.Dir(at)) {
			if err := os.Mkdir(d, 0o755); err != nil {
				return err
			}
			made = append(made, d)
		}
		draft, err := beside(at, f[name])
		c := change{draft: draft, at: at}
		changes = append(changes, c)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(at); err == nil {
			if changes[len(changes)-1].kept, err = beside(at, old); err != nil {
				return err
			}
		}
	}
	for i, c := range changes {
		if err := os.Rename(c.draft, c.at); err != nil {
			undo(changes[:i])
			return err
		}
	}
	return nil
}

// missing returns the missing parent directories, outermost first.
func missing(dir string) []string {
	var all []string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			slices.Reverse(all)
			return all
		}
		all = append(all, at)
	}
}

// beside writes a temporary file in the same directory.
func beside(at string, content []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(at), ".fairlead-new-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	return f.Name(), errors.Join(err, f.Chmod(0o644), f.Close())
}
