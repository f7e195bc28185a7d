package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgres is a server of this test, in a directory of its own, that listens on a Unix socket only.
type postgres struct {
	dir  string
	cmd  *exec.Cmd
	done chan error
}

// startPostgres needs the programs of PostgreSQL. As root it runs them as user postgres, since they refuse root.
func startPostgres() (_ *postgres, err error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		if attr.Credential, err = owner("postgres", dir); err != nil {
			return nil, err
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "test", "-A", "trust", "-N", "-E", "UTF8",
		"--locale=C").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make database: %w: %s", err, out)
	}
	cmd := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
		"max_connections=200")
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start PostgreSQL: %w", err)
	}
	server := &postgres{dir: dir, cmd: cmd, done: make(chan error, 1)}
	ready := make(chan struct{})
	var said bytes.Buffer // until ready or the end
	go func() {
		up := false
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if !up {
				said.WriteString(lines.Text() + "\n")
				if up = strings.Contains(lines.Text(), "ready to accept connections"); up {
					close(ready)
				}
			}
		}
		server.done <- cmd.Wait()
	}()
	select {
	case <-ready:
		return server, nil
	case err := <-server.done:
		return nil, fmt.Errorf("cannot start PostgreSQL: %w: %s", cmp.Or(err, errors.New("it ended")), said.String())
	case <-time.After(time.Minute):
		return nil, errors.Join(errors.New("cannot start PostgreSQL: not ready within a minute"), cmd.Process.Kill(),
			<-server.done)
	}
}

func (p *postgres) dsn() string {
	return "host=" + p.dir + " user=test dbname=postgres sslmode=disable"
}

// stop ends the server at once and deletes its directory.
func (p *postgres) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	return errors.Join(err, <-p.done, os.RemoveAll(p.dir))
}

func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	// Debian keeps them apart by version.
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("the programs of PostgreSQL are needed: apt-get install postgresql"), err)
	}
	return filepath.Dir(slices.Max(found)), nil
}

// owner gives dir to the user and returns what a program needs to run as that user.
func owner(name, dir string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}
