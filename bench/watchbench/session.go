package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// session is one peer in one round: a child process and what it has measured.
type session struct {
	f      *fixture
	o      options
	spec   int
	values map[string]float64 // "row.metric"

	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

// childEnv, when set, makes the program a child that measures the peer of that name.
const childEnv = "BENCH_CHILD"

func newSession(ctx context.Context, f *fixture, o options, spec int, list bool) (*session, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &session{f: f, o: o, spec: spec, values: map[string]float64{}}
	s.cmd = exec.CommandContext(ctx, exe)
	s.cmd.Env = append(os.Environ(), childEnv+"="+specs[spec].name)
	if list {
		s.cmd.Env = append(s.cmd.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in, s.out = json.NewEncoder(stdin), json.NewDecoder(bufio.NewReader(stdout))
	return s, s.cmd.Start()
}

// close ends the child at once.
func (s *session) close() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// tell sends a command and waits for the answer, whose values are kept under the row.
func (s *session) tell(row string, c command) (answer, error) {
	var a answer
	if err := s.in.Encode(c); err != nil {
		return a, fmt.Errorf("cannot %s: %w", c.Do, err)
	}
	if err := s.out.Decode(&a); err != nil {
		return a, fmt.Errorf("cannot %s: the child has ended: %w", c.Do, err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("cannot %s: %s", c.Do, a.Err)
	}
	for k, v := range a.Values {
		s.values[row+"."+k] = v
	}
	return a, nil
}

func (s *session) profile(row string, round int) string {
	if s.o.profile == "" || round > 0 {
		return ""
	}
	name := strings.NewReplacer(" ", "-", ",", "", ":", "").Replace(specs[s.spec].name)
	return filepath.Join(s.o.profile, row+"-"+name+".pprof")
}

func (s *session) match() apiserver.Match {
	gvr, _ := s.f.corpusOf(specs[s.spec].corpus)
	return apiserver.Match{Verb: "watch", Resource: gvr.Resource}
}

// sync is row S1, S2 and S2p.
func (s *session) sync(row string, round int, list bool) error {
	_, err := s.tell(row, command{Do: "start", URL: s.f.server.URL(), List: list, Profile: s.profile(row, round)})
	return err
}

// rewrite stores new versions of the first n objects, round and round, in one go.
func (s *session) rewrite(n int) error {
	gvr, objects := s.f.corpusOf(specs[s.spec].corpus)
	for n > 0 {
		k := min(n, len(objects))
		if err := s.f.server.Preload(gvr, k, func(i int, version string) apiserver.Encoded {
			objects[i] = again(objects[i], version)
			return objects[i]
		}); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// throughput is row S3: events are held back until all are stored, so that the client is what is measured.
func (s *session) throughput(row string, round int, whole bool) error {
	n := s.o.events
	if _, err := s.tell(row, command{Do: "expect", N: n, Whole: whole, Profile: s.profile(row, round)}); err != nil {
		return err
	}
	hold := s.f.server.HoldEvents(s.match())
	err := s.rewrite(n)
	hold.Release()
	if err != nil {
		return err
	}
	_, err = s.tell(row, command{Do: "await"})
	if t := s.values[row+".seconds"]; t > 0 {
		s.values[row+".rate"] = float64(n) / t
		s.values[row+".perCPU"] = float64(n) / s.values[row+".cpu"]
	}
	return err
}

// latency is row S4, at a fixed rate: from just before the write to the handler, on one clock.
func (s *session) latency(row string, rate int, d time.Duration) error {
	n := int(float64(rate) * d.Seconds())
	if _, err := s.tell(row, command{Do: "expect", N: n, Whole: true}); err != nil {
		return err
	}
	gvr, objects := s.f.corpusOf(specs[s.spec].corpus)
	sent := make(map[string]time.Time, n)
	begin := time.Now()
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		j := i * 31 % len(objects)
		next := apiserver.Encoded{}
		if err := s.f.server.Publish(gvr, func(version string) apiserver.Encoded {
			next = again(objects[j], version)
			sent[version] = time.Now()
			return next
		}); err != nil {
			return err
		}
		objects[j] = next
	}
	a, err := s.tell(row, command{Do: "await"})
	if err != nil {
		return err
	}
	var took []time.Duration
	for version, at := range sent {
		if ns, ok := a.Handled[version]; ok {
			took = append(took, time.Unix(0, ns).Sub(at))
		}
	}
	s.values[row+".p50"], s.values[row+".p99"], s.values[row+".max"] = quantile(took, 0.5).Seconds(), quantile(took, 0.99).Seconds(), quantile(took, 1).Seconds()
	return nil
}

// stalls is row S8: latency of events while readers are busy, and of the readers.
func (s *session) stalls(row string, rate int, d time.Duration) error {
	if _, err := s.tell(row, command{Do: "read"}); err != nil {
		return err
	}
	if err := s.latency(row, rate, d); err != nil {
		return err
	}
	_, err := s.tell(row, command{Do: "readStop"})
	return err
}

// blocked is row S7: a handler stands still while few objects change often.
func (s *session) blocked(row string, updates, keys int) error {
	if _, err := s.tell(row, command{Do: "block"}); err != nil {
		return err
	}
	gvr, objects := s.f.corpusOf(specs[s.spec].corpus)
	version := ""
	for range updates / keys {
		if err := s.f.server.Preload(gvr, keys, func(i int, v string) apiserver.Encoded {
			objects[i] = again(objects[i], v)
			version = v
			return objects[i]
		}); err != nil {
			return err
		}
	}
	if err := s.delivered(); err != nil {
		return err
	}
	if _, err := s.tell(row, command{Do: "blocked"}); err != nil {
		return err
	}
	_, err := s.tell(row, command{Do: "unblock", Version: version})
	return err
}

// delivered waits until the watch has sent what was written, and a moment for the client to take it in.
func (s *session) delivered() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var sent int64 = -1
	for {
		var now int64
		for _, r := range s.f.server.Log().Select(s.match()) {
			now += r.Events
		}
		if now == sent {
			return nil
		}
		sent = now
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return errors.New("cannot deliver: the watch goes on sending")
		}
	}
}

// relist is row S5: the history is forgotten and the watch ends, so that everything is listed again; nothing has changed.
func (s *session) relist(row string) error {
	if _, err := s.tell(row, command{Do: "relist"}); err != nil {
		return err
	}
	// The version moves by a write to the other resource.
	other, objects := s.f.corpusOf(map[string]string{"pods": "widgets", "widgets": "pods"}[specs[s.spec].corpus])
	if err := s.f.server.Publish(other, func(version string) apiserver.Encoded {
		objects[0] = again(objects[0], version)
		return objects[0]
	}); err != nil {
		return err
	}
	seen, at := len(s.f.server.Log().Requests), s.f.server.Revision()
	s.f.server.Compact(0)
	s.f.server.DropConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m := s.match()
	m.Func = func(r apiserver.Request) bool { return r.ID > seen && r.Code == 200 }
	if err := s.f.server.WaitFor(ctx, func(l apiserver.Log) bool {
		open := l.Select(m)
		// The one that stays, and not the one that ends at once with a 410.
		if len(open) == 0 || open[len(open)-1].Done {
			return false
		}
		r := open[len(open)-1]
		from, _ := strconv.ParseUint(r.Query.Get("resourceVersion"), 10, 64)
		return r.Query.Get("sendInitialEvents") == "" && from >= at || r.Events > int64(len(s.f.pods))
	}); err != nil {
		return err
	}
	gvr, mine := s.f.corpusOf(specs[s.spec].corpus)
	version := ""
	if err := s.f.server.Publish(gvr, func(v string) apiserver.Encoded {
		mine[0] = again(mine[0], v)
		version = v
		return mine[0]
	}); err != nil {
		return err
	}
	_, err := s.tell(row, command{Do: "relisted", Version: version})
	return err
}
