package project

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io/fs"
	"strings"
	"text/template"
)

//go:embed all:template
var templates embed.FS

// files maps slash-separated paths in the project to contents.
type files map[string][]byte

// render adds the files of one part of the templates.
func (f files) render(part string, n names) error {
	root := "template/" + part
	return fs.WalkDir(templates, root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := templates.ReadFile(at)
		if err != nil {
			return err
		}
		name := n.path(strings.TrimPrefix(at, root+"/"))
		out, err := n.fill(name, string(text))
		if err != nil {
			return err
		}
		f[name] = out
		return nil
	})
}

// path returns the file name for a template name.
func (n names) path(name string) string {
	r := strings.NewReplacer("GROUPFULL", n.Group, "GROUP", n.GroupWord, "VERSION", n.Version, "KIND", n.Lower,
		"PLURAL", n.Plural, "dot.", ".", ".tmpl", "")
	return r.Replace(name)
}

// fill executes a template, and formats Go files.
func (n names) fill(name, text string) ([]byte, error) {
	t, err := template.New(name).Delims("<<", ">>").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, n); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	if !strings.HasSuffix(name, ".go") {
		return out.Bytes(), nil
	}
	return formatted(name, out.Bytes())
}

func formatted(name string, source []byte) ([]byte, error) {
	out, err := format.Source(source)
	if err != nil {
		return nil, fmt.Errorf("cannot format %s: %w", name, err)
	}
	return out, nil
}
