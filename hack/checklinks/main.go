// Command checklinks checks the pointers to files of the repository.
//
//	checklinks [DIR]
//
// It reads the files that git lists below DIR and reports:
//
//   - relative links and images of Markdown pages whose file or heading does not exist;
//   - URLs of the repository on GitHub, in any text, whose file or heading does not exist;
//   - paths of pages and pictures below docs, in any text, that do not exist.
//
// It does not read the inputs of tests (testdata), and requests no URL. checklinks fails if it reports anything.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(dir); err != nil {
		fmt.Fprintln(os.Stderr, "checklinks:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	names, err := listed(dir)
	if err != nil {
		return err
	}
	broken, err := check(os.DirFS(dir), names)
	if err != nil {
		return err
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d broken links", len(broken))
	}
	return nil
}

// listed returns the files that git tracks or would add, below dir.
func listed(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the files of %s: %w", dir, err)
	}
	return strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), nil
}

// check returns the broken links of the named files, in the order of the names.
func check(fsys fs.FS, names []string) ([]string, error) {
	slices.Sort(names)
	c := checker{files: fsys, headings: map[string]map[string]bool{}}
	for _, name := range names {
		if strings.Contains(name, "/testdata/") {
			continue
		}
		info, err := fs.Stat(fsys, name)
		if err != nil || !info.Mode().IsRegular() {
			continue // removed but still in the index, or a link to a directory
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		if !bytes.ContainsRune(text, 0) { // no binary file
			c.file(name, string(text))
		}
	}
	return c.broken, nil
}
