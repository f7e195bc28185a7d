//go:build !linux

package pod

import (
	"errors"
	"os/exec"
)

// Pod runs programs with the files of a service account. Here there is none.
type Pod struct{}

// New fails: only Linux has mount namespaces.
func New(string) (*Pod, error) {
	return nil, errors.New("cannot run a program as in a Pod: this needs Linux")
}

// Enter does nothing.
func (*Pod) Enter(*exec.Cmd) {}
