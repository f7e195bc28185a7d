package controllerstest

import (
	"os"
	"path/filepath"
	"strings"
)

// separator ends the state after a step in a file.
const separator = "\n----\n"

// File returns the name of the file with the states of a script.
func File(dir string, s Script) string { return filepath.Join(dir, s.Name+".txt") }

// Join returns the content of a file with these states.
func Join(states []string) string { return strings.Join(states, separator) + separator }

// Read returns the states of a file.
func Read(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), separator), separator), nil
}
