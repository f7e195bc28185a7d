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

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var (
	moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)
	groupLine  = regexp.MustCompile(`(?m)^// \+groupName=(\S+)`)
	typeLine   = regexp.MustCompile(`(?m)^type (\w+) `)
)

// existing is a project on disk, and the changes to it. Nothing is written before save.
type existing struct {
	dir     string
	module  string
	content files // new and changed files
}

// open returns the project in a directory. The default is the current one.
func open(dir string) (*existing, error) {
	dir, err := filepath.Abs(cmp.Or(dir, "."))
	if err != nil {
		return nil, fmt.Errorf("cannot use directory %q: %w: %w", dir, ErrWrite, err)
	}
	p := &existing{dir: dir, content: files{}}
	mod, err := p.read("go.mod")
	if err != nil {
		return nil, err
	}
	module := moduleLine.FindSubmatch(mod)
	if module == nil {
		return nil, p.no(errors.New("go.mod names no module"))
	}
	p.module = string(module[1])
	return p, nil
}

// names returns the names of a kind in the project.
func (p *existing) names(group, version, kind string) names {
	return names{Module: p.module, Name: nameOf(p.module)}.of(group, version, kind)
}

// save writes all changes or none.
func (p *existing) save() (*Made, error) {
	if err := p.content.replace(p.dir); err != nil {
		return nil, fmt.Errorf("cannot change the project in %s: %w: %w", p.dir, ErrWrite, err)
	}
	return &Made{Dir: p.dir, Files: p.content.names()}, nil
}

func (p *existing) no(err error) error {
	return fmt.Errorf("cannot change the project in %s: %w: %w", p.dir, ErrNoProject, err)
}

func (p *existing) at(name string) string { return filepath.Join(p.dir, filepath.FromSlash(name)) }

// read returns a file that every project has, with the changes to it.
func (p *existing) read(name string) ([]byte, error) {
	if text, changed := p.content[name]; changed {
		return text, nil
	}
	text, err := os.ReadFile(p.at(name))
	if err != nil {
		return nil, p.no(err)
	}
	return text, nil
}

// exists reports whether a file exists.
func (p *existing) exists(name string) bool {
	_, err := os.Lstat(p.at(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// render adds the files of parts of the templates. A file that exists is an error about the value.
func (p *existing) render(n names, what, value string, parts ...string) error {
	made := files{}
	for _, part := range parts {
		if err := made.render(part, n); err != nil {
			return err
		}
	}
	var had []string
	for _, name := range made.names() {
		if p.exists(name) {
			had = append(had, name)
		}
		p.content[name] = made[name]
	}
	if len(had) > 0 {
		return invalid(ErrExists, what, value, "%s", strings.Join(had, ", "))
	}
	return nil
}

// add inserts a line at a marker of a file.
func (p *existing) add(name, marker, line string) error {
	text, err := p.read(name)
	if err != nil {
		return err
	}
	at := bytes.Index(text, []byte("fairlead:new "+marker))
	if at < 0 {
		return p.no(fmt.Errorf("%s has no line with fairlead:new %s, before which this belongs: %s", name, marker, line))
	}
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	indent := text[begin : begin+len(text[begin:])-len(bytes.TrimLeft(text[begin:], " \t"))]
	edited := bytes.Join([][]byte{text[:begin], indent, []byte(line), []byte("\n"), text[begin:]}, nil)
	if strings.HasSuffix(name, ".go") {
		if edited, err = formatted(name, edited); err != nil {
			return p.no(err)
		}
	}
	p.content[name] = edited
	return nil
}

// newGroup reports whether the group and version of a kind are new.
func (p *existing) newGroup(n names) (bool, error) {
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

// register adds the types of a kind to its scheme, and the group and version if they are new.
func (p *existing) register(n names, newGroup bool) error {
	if !newGroup {
		return p.add(n.path("api/GROUP/VERSION/group_version.go"), "kinds", fmt.Sprintf("&%s{}, &%[1]sList{},", n.Kind))
	}
	return errors.Join(
		p.add("api/all_kinds.go", "imports",
			fmt.Sprintf("%s %q", n.Alias, n.Module+"/api/"+n.GroupWord+"/"+n.Version)),
		p.add("api/all_kinds.go", "groups", n.Alias+".AddToScheme(s),"))
}

// served is a kind of the project.
type served struct {
	file string // its CustomResourceDefinition
	text []byte
	crd  apiextensionsv1.CustomResourceDefinition
	names
}

// find returns a kind. Its version is the one in which the API server stores objects.
func (p *existing) find(group, kind string) (*served, error) {
	all, err := filepath.Glob(p.at("deploy/crds/*.yaml"))
	if err != nil {
		return nil, p.no(err)
	}
	for _, at := range all {
		k := served{file: "deploy/crds/" + filepath.Base(at)}
		if k.text, err = os.ReadFile(at); err != nil {
			return nil, p.no(err)
		}
		if err := yaml.Unmarshal(k.text, &k.crd); err != nil {
			return nil, p.no(fmt.Errorf("%s: %w", k.file, err))
		}
		if k.crd.Spec.Group != group || k.crd.Spec.Names.Kind != kind {
			continue
		}
		for _, v := range k.crd.Spec.Versions {
			if v.Storage {
				k.names = p.names(group, v.Name, kind)
				k.Plural = k.crd.Spec.Names.Plural
				k.ClusterScoped = k.crd.Spec.Scope == apiextensionsv1.ClusterScoped
				return &k, nil
			}
		}
		return nil, p.no(fmt.Errorf("%s has no version with storage: true", k.file))
	}
	return nil, invalid(ErrUnknown, "kind", kind, "no file of deploy/crds defines it in the group %s", group)
}
