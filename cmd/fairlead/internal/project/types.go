package project

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// storageMarker selects the stored version of a kind with several versions.
const storageMarker = "// +kubebuilder:storageversion"

// copyTypes copies the file with the types of a kind to another version, with the deep copy functions. It marks the
// stored version.
func copyTypes(p *existing, stored, n names, newGroup bool) error {
	name := stored.path("api/GROUP/VERSION/KIND.go")
	no := func(format string, args ...any) error {
		return invalid(ErrTypes, "kind", n.Kind, format, args...)
	}
	text, err := p.read(name)
	if err != nil {
		return no("they have to be in %s", name)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return no("%v", err)
	}
	decl, types := typesOf(file, n.Kind)
	if decl == nil {
		return no("%s has no declaration type %s struct", name, n.Kind)
	}
	if err := complete(p, file, name, no); err != nil {
		return err
	}
	if err := addUntyped(p, n, types...); err != nil {
		return err
	}
	// The copy has another name of the package, and no marker.
	at := func(pos token.Pos) int { return set.Position(pos).Offset }
	copied := bytes.Join([][]byte{text[:at(file.Name.Pos())], []byte(n.Version), text[at(file.Name.End()):]}, nil)
	to := n.path("api/GROUP/VERSION/KIND.go")
	if p.exists(to) {
		return invalid(ErrExists, "version", n.Version, "%s", to)
	}
	if bytes.Contains(text, []byte(storageMarker)) {
		copied = bytes.ReplaceAll(copied, []byte(storageMarker+"\n"), nil)
	} else {
		begin := at(decl.TokPos)
		p.content[name] = bytes.Join([][]byte{text[:begin], []byte(storageMarker + "\n"), text[begin:]}, nil)
	}
	p.content[to] = copied

	old, err := p.read(stored.path(deepCopyFile))
	if err != nil {
		return err
	}
	functions, err := copyDeepCopy(stored, n, old, types)
	if err != nil {
		return no("%s: %v", stored.path(deepCopyFile), err)
	}
	if !newGroup {
		into, err := p.read(n.path(deepCopyFile))
		if err != nil {
			return err
		}
		if functions, err = mergeDeepCopy(into, functions); err != nil {
			return p.no(fmt.Errorf("%s: %w", n.path(deepCopyFile), err))
		}
	}
	p.content[n.path(deepCopyFile)] = functions
	return nil
}

// typesOf returns the types of a file, and the declaration of one of them. A declaration with parentheses does not
// count.
func typesOf(file *ast.File, kind string) (decl *ast.GenDecl, types []string) {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			name := s.(*ast.TypeSpec).Name.Name
			types = append(types, name)
			if name == kind && !g.Lparen.IsValid() {
				decl = g
			}
		}
	}
	return decl, types
}

// complete returns an error if a file uses names of other files of its package, which a copy would lack.
func complete(p *existing, file *ast.File, name string, no func(string, ...any) error) error {
	others := map[string]string{} // package-level names, with their files
	found, err := filepath.Glob(filepath.Join(filepath.Dir(p.at(name)), "*.go"))
	if err != nil {
		return p.no(err)
	}
	for _, at := range found {
		if at == p.at(name) || strings.HasSuffix(at, "_test.go") {
			continue
		}
		other, err := parser.ParseFile(token.NewFileSet(), at, nil, 0)
		if err != nil {
			return no("%v", err)
		}
		for _, d := range other.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					others[d.Name.Name] = at
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						others[s.Name.Name] = at
					case *ast.ValueSpec:
						for _, id := range s.Names {
							others[id.Name] = at
						}
					}
				}
			}
		}
	}
	for _, id := range file.Unresolved {
		if at, ok := others[id.Name]; ok {
			return no("%s uses %s of %s; move it to %[1]s first", name, id.Name, filepath.Base(at))
		}
	}
	return nil
}

// copyDeepCopy returns the deep copy functions of types for the package of another version.
func copyDeepCopy(n, to names, old []byte, types []string) ([]byte, error) {
	head, chunks := splitDeepCopy(old)
	var body []byte
	slices.Sort(types)
	for _, typ := range types {
		body = append(append(body, bytes.TrimSpace(chunks[typ])...), "\n\n"...) // a type may need no functions
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, fmt.Errorf("it has no functions of %s: run make manifests first", strings.Join(types, ", "))
	}
	head = bytes.Replace(head, []byte("package "+n.Version+"\n"), []byte("package "+to.Version+"\n"), 1)
	head, body = renameMeta(head, body, to.Version)
	head = importLine.ReplaceAllFunc(head, func(line []byte) []byte {
		m := importLine.FindSubmatch(line)
		as := string(m[1])
		if as == "" {
			as = path.Base(strings.Trim(string(m[2]), `"`))
		}
		if !regexp.MustCompile(`\b` + as + `\.`).Match(body) {
			return nil
		}
		return line
	})
	return formatted(n.path(deepCopyFile), append(append(bytes.TrimSpace(head), "\n\n"...), body...))
}

// renameMeta names the import of the package meta/v1 as controller-gen does: metav1 in a package v1, and v1 in others.
func renameMeta(head, body []byte, version string) (newHead, newBody []byte) {
	m := metaImport.FindSubmatch(head)
	if m == nil {
		return head, body
	}
	was, is, line := "v1", "v1", "\t\"k8s.io/apimachinery/pkg/apis/meta/v1\"\n"
	if len(m[1]) > 0 {
		was = string(m[1])
	}
	if version == "v1" {
		is, line = "metav1", "\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n"
	}
	return bytes.Replace(head, m[0], []byte(line), 1),
		regexp.MustCompile(`\b`+was+`\.`).ReplaceAll(body, []byte(is+"."))
}
