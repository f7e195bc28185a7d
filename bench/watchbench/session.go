package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// session is one round of one peer: a child process and its results.
type session struct {
	f      *fixture
	o      options
	spec   int
	values map[string]float64 // "row.metric"
	took   []string           // duration of each row

	cmd     *exec.Cmd
	in      *json.Encoder
	out     *json.Decoder
	end     context.CancelCauseFunc // ends the child
	guarded sync.WaitGroup
}

// childEnv is the environment variable with the name of the peer that a child measures. It makes a process a child.
const childEnv = "BENCH_CHILD"

// newSession starts a child, which ends with the returned context.
func newSession(ctx context.Context, f *fixture, o options, spec int, list bool) (context.Context, *session, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	s := &session{f: f, o: o, spec: spec, values: map[string]float64{}}
	ctx, s.end = context.WithCancelCause(ctx)
	s.cmd = exec.CommandContext(ctx, exe)
	s.cmd.Env = append(append(os.Environ(), specs[spec].env...), childEnv+"="+specs[spec].name)
	s.cmd.Env = append(s.cmd.Env, fmt.Sprint(bucketsEnv, "=", o.buckets))
	if list {
		s.cmd.Env = append(s.cmd.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err == nil {
		var stdout io.ReadCloser
		if stdout, err = s.cmd.StdoutPipe(); err == nil {
			s.in, s.out = json.NewEncoder(stdin), json.NewDecoder(bufio.NewReader(stdout))
			err = s.cmd.Start()
		}
	}
	if err != nil {
		s.end(err)
		return nil, nil, err
	}
	if !endIfShort(s.end, s.cmd.Process.Pid, o.reserve) {
		s.guarded.Go(func() { guard(ctx, s.end, s.cmd.Process.Pid, o.reserve) })
	}
	return ctx, s, nil
}

// close kills the child.
func (s *session) close() {
	s.end(nil)
	s.guarded.Wait()
	_ = s.cmd.Wait()
}

// run measures rows in sequence. After each row it drops the history of the server, so that the history stays short.
func (s *session) run(ctx context.Context, rows []row) (failed string, err error) {
	for _, r := range rows {
		begin := time.Now()
		limit := time.AfterFunc(s.o.limit, func() { s.end(ended(fmt.Sprintf("not within %s", s.o.limit))) })
		err := r.measure(ctx)
		limit.Stop()
		s.took = append(s.took, fmt.Sprintf("%s %.1f s", r.name, time.Since(begin).Seconds()))
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return r.name, err
		}
		s.f.server.Compact(0)
	}
	return "", nil
}

// tell sends a command, waits for the answer, and records its values under the row.
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

// sync measures rows S1, S2 and S2p; with LIST, only S1.
func (s *session) sync(row string, round int, c command) error {
	c.Do, c.URL, c.Profile, c.Settle = "start", s.f.server.URL(), s.profile(row, round), s.o.settle
	_, err := s.tell(row, c)
	return err
}

// rewrite stores new versions of the first n objects at once, and returns the last version.
func (s *session) rewrite(n int) (version string, err error) {
	gvr, objects := s.f.corpusOf(specs[s.spec].corpus)
	err = s.f.server.Preload(gvr, n, func(i int, v string) apiserver.Encoded {
		objects[i] = again(objects[i], v)
		version = v
		return objects[i]
	})
	return version, err
}

// moreHandlers is the number of additional handlers of an informer.
const moreHandlers = 10

// readSpan is the duration of row S8, if -span is not shorter.
const readSpan = 5 * time.Second

// rows returns the rows of a session with a WatchList, in order.
func (s *session) rows(round int) []row {
	rows := []row{
		{"S1", func(context.Context) error { return s.sync("S1", round, command{}) }},
		{"S6", func(context.Context) error {
			_, err := s.tell("S6", command{Do: "reads", Profile: s.profile("S6", round)})
			return err
		}},
		{"HANDLERS", func(context.Context) error {
			_, err := s.tell("HANDLERS", command{Do: "handlers", N: moreHandlers, Settle: s.o.settle})
			return err
		}},
		{"S3", func(context.Context) error { return s.throughput("S3", round, true) }},
		{"S3header", func(context.Context) error { return s.throughput("S3header", round, false) }},
		{"S8", func(ctx context.Context) error { return s.stalls(ctx, "S8", s.o.rate*5/2, min(s.o.span, readSpan)) }},
	}
	if round == 0 || len(s.o.rows) > 0 {
		rows = append(rows, row{"S4", func(ctx context.Context) error { return s.latency(ctx, "S4", s.o.rate, s.o.span) }})
	}
	if round == 0 {
		rows = append(rows, row{"S7", func(ctx context.Context) error {
			return s.blocked(ctx, "S7", s.o.blocked, min(1000, s.o.objects))
		}})
	}
	if round == 0 || !specs[s.spec].slow {
		rows = append(rows, row{"S5", func(ctx context.Context) error { return s.relist(ctx, "S5") }})
	}
	return rows
}

// events returns the number of changes of row S3, each of another object. A slow peer gets a third of them, which is
// enough to measure its rate.
func (s *session) events() int {
	n := s.o.events
	if specs[s.spec].slow {
		n = max(1, n/3)
	}
	return min(n, s.o.objects)
}

// throughput measures row S3. The server holds events back until all are stored, so that the client is the
// bottleneck.
func (s *session) throughput(row string, round int, whole bool) error {
	n := s.events()
	if _, err := s.tell(row, command{Do: "expect", N: n, Whole: whole, Profile: s.profile(row, round)}); err != nil {
		return err
	}
	hold := s.f.server.HoldEvents(s.match())
	version, err := s.rewrite(n)
	hold.Release()
	if err != nil {
		return err
	}
	_, err = s.tell(row, command{Do: "await", Version: version})
	if t := s.values[row+".seconds"]; t > 0 {
		s.values[row+".rate"] = s.values[row+".events"] / t
		s.values[row+".perCPU"] = s.values[row+".events"] / s.values[row+".cpu"]
	}
	return err
}

// latency measures row S4 at a fixed rate: the time from just before the write until the handler is called, on one
// clock.
func (s *session) latency(ctx context.Context, row string, rate int, d time.Duration) error {
	n := int(float64(rate) * d.Seconds())
	// A collection of the server's heap takes all cores for some ms, and would delay the events of each peer.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	expect := command{Do: "expect", N: n, Whole: true, Times: true, Profile: s.profile(row, 0)}
	if _, err := s.tell(row, expect); err != nil {
		return err
	}
	const lot = 1000
	gvr, objects := s.f.corpusOf(specs[s.spec].corpus)
	sent := make(map[string]time.Time, n)
	last, begun, old := "", s.sent(), s.f.server.Revision()
	begin := time.Now()
	for i := range n {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		j := i * 31 % len(objects)
		next := apiserver.Encoded{}
		if err := s.f.server.Publish(gvr, func(version string) apiserver.Encoded {
			next = again(objects[j], version)
			sent[version] = time.Now()
			last = version
			return next
		}); err != nil {
			return err
		}
		objects[j] = next
		if i%lot == lot-1 { // drop all sent events except the last lot
			if s.sent()-begun > int64(i-lot+10) {
				s.f.server.Compact(old)
			}
			old = s.f.server.Revision()
		}
	}
	a, err := s.tell(row, command{Do: "await", Version: last})
	if err != nil {
		return err
	}
	var took []time.Duration
	for version, at := range sent {
		if ns, ok := a.Handled[version]; ok {
			took = append(took, time.Unix(0, ns).Sub(at))
		}
	}
	s.values[row+".p50"], s.values[row+".p99"], s.values[row+".max"] = quantile(took, 0.5).Seconds(),
		quantile(took, 0.99).Seconds(), quantile(took, 1).Seconds()
	return nil
}

// stalls measures row S8: the latency of events while readers are busy, and the latency of the readers.
func (s *session) stalls(ctx context.Context, row string, rate int, d time.Duration) error {
	if _, err := s.tell(row, command{Do: "read"}); err != nil {
		return err
	}
	if err := s.latency(ctx, row, rate, d); err != nil {
		return err
	}
	_, err := s.tell(row, command{Do: "readStop"})
	return err
}

// blocked measures row S7: the handler is blocked while a few objects change often. The server drops sent events
// meanwhile.
func (s *session) blocked(ctx context.Context, row string, updates, keys int) error {
	if _, err := s.tell(row, command{Do: "block"}); err != nil {
		return err
	}
	version, sent := "", s.sent()
	for range max(1, updates/keys) {
		before := s.f.server.Revision()
		var err error
		if version, err = s.rewrite(keys); err != nil {
			return err
		}
		sent += int64(keys)
		if err := s.delivered(ctx, sent); err != nil {
			return err
		}
		s.f.server.Compact(before)
	}
	select { // until the client has read the data on the wire
	case <-time.After(time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := s.tell(row, command{Do: "blocked"}); err != nil {
		return err
	}
	_, err := s.tell(row, command{Do: "unblock", Version: version})
	return err
}

// sent returns the number of events that the watches of the corpus have sent.
func (s *session) sent() (n int64) {
	for _, r := range s.f.server.Log().Select(s.match()) {
		n += r.Events
	}
	return n
}

// delivered waits until the watches have sent n events.
func (s *session) delivered(ctx context.Context, n int64) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for s.sent() < n {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// relist measures row S5: the server compacts its history and ends the watch, so that the client lists all objects
// again. No object has changed.
func (s *session) relist(ctx context.Context, row string) error {
	if _, err := s.tell(row, command{Do: "relist"}); err != nil {
		return err
	}
	// A write to the other resource advances the version.
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m := s.match()
	m.Func = func(r apiserver.Request) bool { return r.ID > seen && r.Code == 200 }
	if err := s.f.server.WaitFor(ctx, func(l apiserver.Log) bool {
		open := l.Select(m)
		// Skip watches that end at once with 410.
		if len(open) == 0 || open[len(open)-1].Done {
			return false
		}
		r := open[len(open)-1]
		from, _ := strconv.ParseUint(r.Query.Get("resourceVersion"), 10, 64)
		return r.Query.Get("sendInitialEvents") == "" && from >= at || r.Events > int64(s.o.objects)
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
