// Command rooms counts how far one value travels in its package, and how entangled the files of a package are.
//
//	go run ./hack/rooms [-C DIRECTORY] PACKAGE[:FUNCTION]…
//
// FUNCTION is "Func" or "Type.Method". For each FUNCTION, rooms prints the number of functions of the package that it
// reaches, itself included, and the number of files that declare them. A function reaches those that it calls or names.
// A call through an interface reaches nothing, so a part behind an interface ends the count.
//
// For each package, rooms prints the largest cycle: the number of files that use each other, directly or through other
// files. A file uses another if it names a function, type, variable or constant that the other declares. Test files do
// not count.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	dir := flag.String("C", ".", "directory of the module")
	list := flag.Bool("v", false, "print the names of functions and files")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: rooms [-C DIRECTORY] [-v] PACKAGE[:FUNCTION]…")
		os.Exit(2)
	}
	text, err := count(*dir, flag.Args(), *list)
	fmt.Print(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
}

// count returns a line for each package and each function. After an error, it returns the lines up to it.
func count(dir string, args []string, list bool) (string, error) {
	out := &strings.Builder{}
	known := map[string]*room{}
	for _, arg := range args {
		path, function, _ := strings.Cut(arg, ":")
		h := known[path]
		if h == nil {
			var err error
			if h, err = load(dir, path); err != nil {
				return out.String(), err
			}
			known[path] = h
			cycle := h.cycle()
			fmt.Fprintf(out, "%-56s largest cycle of files %d of %d\n", path, len(cycle), len(h.files))
			if list {
				fmt.Fprintln(out, " ", strings.Join(cycle, " "))
			}
		}
		if function == "" {
			continue
		}
		reached, err := h.reach(function)
		if err != nil {
			return out.String(), err
		}
		files := map[string]bool{}
		for _, f := range reached {
			files[h.file(f)] = true
		}
		fmt.Fprintf(out, "%-56s %d functions in %d files\n", arg, len(reached), len(files))
		if list {
			for _, f := range reached {
				fmt.Fprintf(out, "  %s %s\n", h.file(f), nameOf(f))
			}
		}
	}
	return out.String(), nil
}

// room is one package after type checking.
type room struct {
	fset  *token.FileSet
	pkg   *types.Package
	info  *types.Info
	files []*ast.File
	body  map[*types.Func]*ast.FuncDecl
}

// load checks the types of a package. Its imports are read from the build cache, which go list fills.
func load(dir, path string) (*room, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,DepOnly",
		path) //nolint:gosec // a tool
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", path, err)
	}
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
		DepOnly                 bool
	}
	exports := map[string]string{}
	var target *listed
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read the list of %s: %w", path, err)
		}
		if exports[p.ImportPath] = p.Export; !p.DepOnly {
			target = &p
		}
	}
	if target == nil {
		return nil, fmt.Errorf("cannot find the package %s", path)
	}
	h := &room{fset: token.NewFileSet(), body: map[*types.Func]*ast.FuncDecl{}, info: &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	for _, name := range target.GoFiles {
		f, err := parser.ParseFile(h.fset, filepath.Join(target.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		h.files = append(h.files, f)
	}
	conf := types.Config{Importer: importer.ForCompiler(h.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	if h.pkg, err = conf.Check(target.ImportPath, h.fset, h.files, h.info); err != nil {
		return nil, fmt.Errorf("cannot check the types of %s: %w", path, err)
	}
	for _, f := range h.files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				h.body[h.info.Defs[fn.Name].(*types.Func)] = fn
			}
		}
	}
	return h, nil
}

func (h *room) file(o types.Object) string { return filepath.Base(h.fset.Position(o.Pos()).Filename) }

// nameOf returns "Func" or "Type.Method".
func nameOf(f *types.Func) string {
	recv := f.Signature().Recv()
	if recv == nil {
		return f.Name()
	}
	return receiver(recv.Type()) + "." + f.Name()
}

func receiver(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return t.String()
}

// reach returns the functions of the package that the named one reaches, in the order in which they are found.
func (h *room) reach(name string) ([]*types.Func, error) {
	var found []*types.Func
	seen := map[*types.Func]bool{}
	add := func(f *types.Func) {
		if f = f.Origin(); h.body[f] != nil && !seen[f] {
			seen[f] = true
			found = append(found, f)
		}
	}
	for f := range h.body {
		if nameOf(f) == name {
			add(f)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("cannot find the function %s of %s", name, h.pkg.Path())
	}
	for i := 0; i < len(found); i++ {
		ast.Inspect(h.body[found[i]], func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if f, ok := h.info.Uses[id].(*types.Func); ok && f.Pkg() == h.pkg {
				add(f)
			}
			return true
		})
	}
	return found, nil
}

// cycle returns the files of the largest strongly connected component.
func (h *room) cycle() []string {
	uses := map[string]map[string]bool{}
	for id, o := range h.info.Uses {
		if o.Pkg() != h.pkg || !h.declares(o) {
			continue
		}
		from, to := filepath.Base(h.fset.Position(id.Pos()).Filename), h.file(o)
		if uses[from] == nil {
			uses[from] = map[string]bool{}
		}
		uses[from][to] = true
	}
	reach := func(from string) map[string]bool {
		got := map[string]bool{}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for to := range uses[todo[0]] {
				if !got[to] {
					got[to] = true
					todo = append(todo, to)
				}
			}
		}
		return got
	}
	all := map[string]map[string]bool{}
	for f := range uses {
		all[f] = reach(f)
	}
	var largest []string
	for _, f := range h.files {
		name := filepath.Base(h.fset.Position(f.Pos()).Filename)
		var cycle []string
		for _, other := range h.files {
			o := filepath.Base(h.fset.Position(other.Pos()).Filename)
			if o == name || all[name][o] && all[o][name] {
				cycle = append(cycle, o)
			}
		}
		if len(cycle) > len(largest) {
			largest = cycle
		}
	}
	return largest
}

// declares reports whether o is a function, method, type, variable or constant of the package, not a local or a field.
func (h *room) declares(o types.Object) bool {
	if f, ok := o.(*types.Func); ok {
		return h.body[f.Origin()] != nil
	}
	return o.Parent() == h.pkg.Scope()
}
