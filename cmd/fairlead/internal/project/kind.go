package project

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// KindOptions configures NewKind. Group and Kind are required.
type KindOptions struct {
	// Dir is the directory of the project. Default: the current one.
	Dir string
	// Group, Version and Kind are as in [Options].
	Group, Version, Kind string
}

var (
	moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)
	groupLine  = regexp.MustCompile(`(?m)^// \+groupName=(\S+)`)
	typeLine   = regexp.MustCompile(`(?m)^type (\w+) `)
)

// NewKind adds a kind with its controller to a project. It runs no other program. After an error, the project is
// unchanged. Errors match [ErrModule] and the other errors of this package.
func NewKind(o KindOptions) (*Made, error) {
	o.Version, o.Dir = cmp.Or(o.Version, DefaultVersion), cmp.Or(o.Dir, ".")
	if err := checkKind(o.Group, o.Version, o.Kind); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %q: %w: %w", o.Dir, ErrWrite, err)
	}
	p := existing{dir: dir}
	mod, err := p.read("go.mod")
	if err != nil {
		return nil, err
	}
	module := moduleLine.FindSubmatch(mod)
	if module == nil {
		return nil, p.no(errors.New("go.mod names no module"))
	}
	n := names{Module: string(module[1]), Name: nameOf(string(module[1]))}.of(o.Group, o.Version, o.Kind)
	content := files{}
	newGroup, err := p.group(n)
	if err != nil {
		return nil, err
	}
	parts := []string{"kind"}
	if newGroup {
		parts = append(parts, "group")
	}
	for _, part := range parts {
		if err := content.render(part, n); err != nil {
			return nil, err
		}
	}
	if err := p.absent(n, content); err != nil {
		return nil, err
	}
	if err := p.edit(n, content, newGroup); err != nil {
		return nil, err
	}
	if err := p.deepCopy(n, content, newGroup); err != nil {
		return nil, err
	}
	if err := content.replace(dir); err != nil {
		return nil, fmt.Errorf("cannot add %s to the project in %s: %w: %w", n.Kind, dir, ErrWrite, err)
	}
	return &Made{Dir: dir, Files: content.names()}, nil
}

// existing is a project on disk.
type existing struct{ dir string }

func (p existing) no(err error) error {
	return fmt.Errorf("cannot add a kind in %s: %w: %w", p.dir, ErrNoProject, err)
}

// read returns a file that every project has.
func (p existing) read(name string) ([]byte, error) {
	text, err := os.ReadFile(p.at(name))
	if err != nil {
		return nil, p.no(err)
	}
	return text, nil
}

func (p existing) at(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

// deepCopy adds the deep copy functions of a kind.
func (p existing) deepCopy(n names, content files, newGroup bool) error {
	name := n.path(deepCopyFile)
	text, err := deepCopyOf(n)
	if err != nil {
		return err
	}
	if !newGroup {
		old, err := p.read(name)
		if err != nil {
			return err
		}
		if text, err = mergeDeepCopy(old, text); err != nil {
			return p.no(fmt.Errorf("%s: %w", name, err))
		}
	}
	content[name] = text
	return nil
}

// group reports whether the group and version of a kind are new.
func (p existing) group(n names) (bool, error) {
	name := n.path("api/GROUP/VERSION/group_version.go")
	text, err := os.ReadFile(p.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, p.no(err)
	}
	if had := groupLine.FindSubmatch(text); had == nil || string(had[1]) != n.Group {
		return false, invalid(ErrExists, "group", n.Group, "%s is of another one, whose first word is the same", name)
	}
	return false, nil
}

// absent returns an error if files of the kind exist already.
func (p existing) absent(n names, content files) error {
	var errs []error
	for _, name := range content.names() {
		if _, err := os.Lstat(p.at(name)); err == nil {
			errs = append(errs, invalid(ErrExists, "kind", n.Kind, "%s", name))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	of, err := filepath.Glob(p.at(n.path("api/GROUP/VERSION/*.go")))
	if err != nil {
		return p.no(err)
	}
	for _, file := range of {
		text, err := os.ReadFile(file)
		if err != nil {
			return p.no(err)
		}
		for _, typ := range typeLine.FindAllSubmatch(text, -1) {
			switch string(typ[1]) {
			case n.Kind, n.Kind + "List", n.Kind + "Spec", n.Kind + "Status":
				return invalid(ErrExists, "kind", n.Kind, "type %s, in %s", typ[1], file)
			}
		}
	}
	return nil
}

// edit adds the lines for a kind to existing files.
func (p existing) edit(n names, content files, newGroup bool) error {
	add := func(name, marker, line string) error {
		text, done := content[name]
		if !done {
			var err error
			if text, err = p.read(name); err != nil {
				return err
			}
		}
		at := bytes.Index(text, []byte("fairlead:new "+marker))
		if at < 0 {
			return p.no(fmt.Errorf("%s has no line with fairlead:new %s, before which this belongs: %s", name, marker,
				line))
		}
		begin := bytes.LastIndexByte(text[:at], '\n') + 1
		indent := text[begin : begin+len(text[begin:])-len(bytes.TrimLeft(text[begin:], " \t"))]
		edited := bytes.Join([][]byte{text[:begin], indent, []byte(line), []byte("\n"), text[begin:]}, nil)
		if strings.HasSuffix(name, ".go") {
			var err error
			if edited, err = formatted(name, edited); err != nil {
				return p.no(err)
			}
		}
		content[name] = edited
		return nil
	}
	if newGroup {
		err := errors.Join(
			add("api/all_kinds.go", "imports",
				fmt.Sprintf("%s %q", n.Alias, n.Module+"/api/"+n.GroupWord+"/"+n.Version)),
			add("api/all_kinds.go", "groups", n.Alias+".AddToScheme(s),"))
		if err != nil {
			return err
		}
	} else if err := add(n.path("api/GROUP/VERSION/group_version.go"), "kinds",
		fmt.Sprintf("&%s{}, &%[1]sList{},", n.Kind)); err != nil {
		return err
	}
	return errors.Join(
		add("controller/all_controllers.go", "controllers", fmt.Sprintf("declare%s(rt)", n.Kind)),
		add("deploy/kustomization.yaml", "crds", "- "+n.path("crds/GROUPFULL_PLURAL.yaml")))
}
