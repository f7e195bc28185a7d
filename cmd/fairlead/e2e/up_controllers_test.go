package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/shard/group"
)

// upLines are the lines that up prints on stderr.
type upLines struct {
	t     *testing.T
	ctx   context.Context
	lines chan string
	said  []string
}

// await reads lines until one matches, and returns its groups.
func (u *upLines) await(pattern string) []string {
	u.t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		select {
		case line, ok := <-u.lines:
			if !ok {
				u.t.Fatalf("it ended without saying %q:\n%s", pattern, strings.Join(u.said, "\n"))
			}
			u.said = append(u.said, line)
			if found := re.FindStringSubmatch(line); found != nil {
				return found
			}
		case <-u.ctx.Done():
			u.t.Fatalf("it does not say %q:\n%s", pattern, strings.Join(u.said, "\n"))
		}
	}
}

// TestUpControllers runs up with three controllers. Each holds a part of the slots and answers for every operation. A
// killed one is restarted, and all end with up.
func TestUpControllers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "up")
	cmd := exec.CommandContext(ctx, "fairlead", "up", "--dir", dir, "--controllers", "3", "--listen", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	u := &upLines{t: t, ctx: ctx, lines: make(chan string, 100)}
	go func() { // ends with the process
		defer close(u.lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			u.lines <- in.Text()
		}
	}()
	processes, addresses := map[string]int{}, map[string]string{}
	note := func() string {
		found := u.await(`^operations controller (\d) ready, process (\d+), HTTP API at (http://\S+)/operations,` +
			` log in \S+$`)
		processes[found[1]], _ = strconv.Atoi(found[2])
		addresses[found[1]] = found[3]
		return found[1]
	}
	for range 3 {
		note()
	}
	if len(processes) != 3 {
		t.Fatalf("ready are %v", processes)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, ctx: ctx, config: config, namespace: "default"}
	shared := func() {
		s.eventually("shared by three", func() bool {
			report, err := group.Read(ctx, config, "default", groupDefault)
			if err != nil {
				return false
			}
			held := 0
			for _, p := range processes {
				for _, m := range report.Members {
					if strings.HasSuffix(m.Name, fmt.Sprint("-", p)) && len(m.Slots) > 0 {
						held += len(m.Slots)
					}
				}
			}
			return len(report.Members) == 3 && held == report.Of
		})
	}
	shared()
	if err := syscall.Kill(processes["2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before := addresses["2"]
	if again := note(); again != "2" || addresses["2"] != before {
		t.Errorf("controller %s is ready again, at %s and not at %s", again, addresses["2"], before)
	}
	if s.scheduler, err = operations.NewScheduler(operations.Options{
		Config:    config,
		Namespace: "default",
	}); err != nil {
		t.Fatal(err)
	}
	defer s.scheduler.Close()
	for i, id := range s.scheduleMany(5, operations.Request{}) {
		v, err := s.scheduler.Wait(ctx, operations.Resource{Type: "app", ID: fmt.Sprint(i)}, id, nil)
		if err != nil || v.Status != operations.Succeeded {
			t.Errorf("%+v (%v)", v, err)
		}
		for _, at := range addresses {
			s.eventually(at+" shows the end", func() bool { // as soon as its watch delivers it
				code, body := s.get(fmt.Sprintf("%s/operations/app/%d", at, i))
				return code == 200 && strings.Contains(body, "SUCCEEDED")
			})
		}
	}
	shared()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	u.await("^control plane stopped$")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for i, process := range processes {
		if err := syscall.Kill(process, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("controller %s goes on: %v", i, err)
		}
	}
}
