package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/cluster"
)

// recorded are servers that write their process ids into a directory at their start.
type recorded struct {
	binaries cluster.Binaries
	dir      string
}

// record builds and wraps the servers. Each wrapper becomes its server, so both have one process id.
func record(ctx context.Context, dir string) (recorded, error) {
	built, err := cluster.Build(ctx, cluster.BuildOptions{Progress: os.Stderr})
	if err != nil {
		return recorded{}, err
	}
	r := recorded{binaries: built, dir: dir}
	for name, program := range map[string]*string{"etcd": &r.binaries.Etcd, "apiserver": &r.binaries.APIServer} {
		script := fmt.Sprintf("#!/bin/sh\necho $$ > '%s'\nexec '%s' \"$@\"\n", filepath.Join(dir, name+".pid"), *program)
		*program = filepath.Join(dir, name)
		if err := os.WriteFile(*program, []byte(script), 0o700); err != nil {
			return recorded{}, err
		}
	}
	return r, nil
}

// pids returns the process ids of the latest servers.
func (r recorded) pids() (etcd, apiServer int, err error) {
	for name, pid := range map[string]*int{"etcd": &etcd, "apiserver": &apiServer} {
		text, err := os.ReadFile(filepath.Join(r.dir, name+".pid"))
		if err != nil {
			return 0, 0, err
		}
		if *pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return 0, 0, err
		}
	}
	return etcd, apiServer, nil
}
