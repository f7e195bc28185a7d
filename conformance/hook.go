package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	_ "embed"
)

const (
	library       = "github.com/fairlead-io/fairlead"
	adapterModule = library + "/controllerruntime"
)

// Source text for overlays of packages cache and client of controller-runtime and of the tested packages. The files
// are embedded as text because they compile only there.
var (
	//go:embed hook/cache.go.txt
	cacheHook string
	//go:embed hook/client.go.txt
	clientHook string
	//go:embed hook/suite.go.txt
	suiteHook string
	//go:embed hook/sample.go.txt
	sampleTest string
)

// openedEnv is the environment variable with the name of a file. A suite appends a line to it for each informer and
// each client that the adapter creates.
const openedEnv = "FAIRLEAD_CONFORMANCE_OPENED"

// An overlay is a set of replacement files for the go command.
type overlay struct {
	dir     string
	replace map[string]string
}

// lay replaces the file over, which need not exist, by text. as is the name of the file with the text.
func (o *overlay) lay(over, as, text string) error {
	path := filepath.Join(o.dir, as)
	o.replace[over] = path
	return os.WriteFile(path, []byte(text), 0o644)
}

// overlay writes the overlay of a tested package and of controller-runtime. It returns the path for the flag -overlay
// of the go command, or "" if there is no overlay.
func (w *workspace) overlay(pkg string, m mode) (string, error) {
	if m == stock && w.subject.test == "" {
		return "", nil
	}
	dir := filepath.Join(filepath.Dir(w.modfile), "overlay", strings.ReplaceAll(pkg, "/", "-"), m.String())
	o := &overlay{dir, map[string]string{}}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return "", err
	}
	lay := w.layReplacement
	if w.subject.test != "" {
		lay = w.layTest
	}
	if err := lay(o, pkg, m); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(o.dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o644)
}

// layTest adds our test to a package.
func (w *workspace) layTest(o *overlay, pkg string, m mode) error {
	text, err := fill(w.subject.test, map[string]any{"Replaced": m == adapter})
	if err != nil {
		return err
	}
	return o.lay(filepath.Join(w.source, pkg, "zz_server_test.go"), "server_test.go", text)
}

// layReplacement makes packages cache and client look for a replacement, and adds a file to the tests of a package
// that registers one.
func (w *workspace) layReplacement(o *overlay, pkg string, _ mode) error {
	name, _, err := testFiles(filepath.Join(w.source, pkg))
	if err != nil {
		return err
	}
	for _, of := range []struct{ pkg, hook string }{{"cache", cacheHook}, {"client", clientHook}} {
		base := filepath.Join(w.runtime, "pkg", of.pkg)
		original, err := os.ReadFile(filepath.Join(base, of.pkg+".go"))
		if err != nil {
			return err
		}
		asking, err := askFirst(original)
		if err != nil {
			return fmt.Errorf("cannot put a replacement before New of package %s: %w", of.pkg, err)
		}
		if err := o.lay(filepath.Join(base, of.pkg+".go"), of.pkg+".go", string(asking)); err != nil {
			return err
		}
		if err := o.lay(filepath.Join(base, "zz_replacement.go"), of.pkg+"_hook.go", of.hook); err != nil {
			return err
		}
	}
	text, err := fill(suiteHook, map[string]any{"Package": name})
	if err != nil {
		return err
	}
	return o.lay(filepath.Join(w.source, pkg, "zz_replacement_test.go"), "suite_test.go", text)
}

// fill executes text as a template. The names of our modules are always defined.
func fill(text string, values map[string]any) (string, error) {
	values["Library"], values["Adapter"], values["Env"] = library, adapterModule, openedEnv
	parsed, err := template.New("").Delims("«", "»").Parse(text)
	if err != nil {
		return "", err
	}
	var filled bytes.Buffer
	err = parsed.Execute(&filled, values)
	return filled.String(), err
}

// askFirst changes the function New of a source file so that it calls replaced first. All lines keep their numbers.
func askFirst(source []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil || function.Name.Name != "New" {
			continue
		}
		var parameters []string
		for _, field := range function.Type.Params.List {
			for _, name := range field.Names {
				parameters = append(parameters, name.Name)
			}
		}
		if len(parameters) != 2 {
			return nil, fmt.Errorf("its parameters are %q, and not a configuration and options", parameters)
		}
		at := files.Position(function.Body.Lbrace).Offset + 1
		const asking = " if made, err, ok := replaced(%s, &%s); ok { return made, err };"
		ask := fmt.Sprintf(asking, parameters[0], parameters[1])
		return []byte(string(source[:at]) + ask + string(source[at:])), nil
	}
	return nil, fmt.Errorf("there is none")
}

// testFiles returns the name of the external test package of a directory, and the parsed test files.
func testFiles(dir string) (string, []*ast.File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", nil, err
	}
	var parsed []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return "", nil, err
		}
		parsed = append(parsed, file)
	}
	if len(parsed) == 0 {
		return "", nil, fmt.Errorf("%s has no tests", dir)
	}
	return strings.TrimSuffix(parsed[0].Name.Name, "_test") + "_test", parsed, nil
}
