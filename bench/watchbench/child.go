package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// command is a command of the parent, one line of JSON on the standard input of the child.
type command struct {
	Do      string        `json:"do"`
	Settle  time.Duration `json:"settle,omitempty"`
	URL     string        `json:"url,omitempty"`
	List    bool          `json:"list,omitempty"`
	Paged   bool          `json:"paged,omitempty"`
	N       int           `json:"n,omitempty"`
	Whole   bool          `json:"whole,omitempty"`
	Times   bool          `json:"times,omitempty"` // record when each event is handled
	Version string        `json:"version,omitempty"`
	Profile string        `json:"profile,omitempty"`
}

// answer is the response of the child, one line of JSON.
type answer struct {
	Err     string             `json:"err,omitempty"`
	Values  map[string]float64 `json:"values,omitempty"`
	Handled map[string]int64   `json:"handled,omitempty"` // version → Unix nanoseconds
}

// child is the child process, which measures one peer.
type child struct {
	peer   peer
	corpus string
	meter  meter

	before   int64 // resident bytes before the start
	resting  int64
	cpu      time.Duration
	heap     heapUse
	profile  *os.File
	stopRead context.CancelFunc
	readers  sync.WaitGroup
	gets     []time.Duration
}

// runChild serves commands until the input ends.
func runChild(name string) error {
	i := specByName(name)
	if i < 0 {
		return fmt.Errorf("cannot find peer %q", name)
	}
	c := &child{peer: specs[i].make(), corpus: specs[i].corpus}
	c.meter.changed = make(chan struct{}, 1)
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var cmd command
		if err := in.Decode(&cmd); err != nil {
			return nil // the parent has ended or is done
		}
		a, err := c.do(cmd)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func (c *child) do(cmd command) (answer, error) {
	switch cmd.Do {
	case "start":
		return c.start(cmd)
	case "reads":
		c.startProfile(cmd.Profile)
		r, err := measureReads(c.peer)
		c.stopProfile()
		return answer{Values: map[string]float64{
			"get": float64(r.Get), "getCold": float64(r.GetCold), "getAllocs": r.GetHeap,
			"list": float64(r.List), "listed": float64(r.Listed),
		}}, err
	case "handlers": // add N handlers
		return c.handlers(cmd)
	case "expect": // expect N events from now on
		c.peer.whole(cmd.Whole)
		c.meter.reset(cmd.N, cmd.Times)
		runtime.GC()
		c.cpu, c.heap = cpu(), heapUsed()
		c.startProfile(cmd.Profile)
		return answer{}, nil
	case "await": // wait for the expected events
		// A cache that merges changes of a key delivers fewer events, but always the last one.
		err := c.meter.waitFor(cmd.Version)
		c.stopProfile()
		used, heap := cpu()-c.cpu, heapUsed()
		n, took := c.meter.rate()
		each := 1 / float64(max(1, n))
		return answer{
			Handled: c.meter.times(),
			Values: map[string]float64{
				"events": float64(n), "seconds": took.Seconds(), "cpu": used.Seconds(), "cpuEach": used.Seconds() * each,
				"bytesEach":   float64(heap.bytes-c.heap.bytes) * each,
				"allocsEach":  float64(heap.allocations-c.heap.allocations) * each,
				"collections": float64(heap.collections - c.heap.collections),
			},
		}, err
	case "read": // read while the next events arrive
		c.read()
		if w, ok := c.peer.(writer); ok {
			w.watchApply()
		}
		return answer{}, nil
	case "readStop":
		c.stopRead()
		c.readers.Wait()
		values := map[string]float64{
			"getP99": quantile(c.gets, 0.99).Seconds(), "getMax": quantile(c.gets, 1).Seconds(),
			"gets": float64(len(c.gets)),
		}
		if w, ok := c.peer.(writer); ok {
			took := w.applied()
			values["applyP99"], values["applyMax"] = quantile(took, 0.99).Seconds(), quantile(took, 1).Seconds()
		}
		return answer{Values: values}, nil
	case "block":
		c.meter.block()
		c.resting = atRest()
		return answer{}, nil
	case "blocked":
		return answer{Values: map[string]float64{"growth": float64(atRest() - c.resting)}}, nil
	case "unblock":
		c.meter.unblock()
		return answer{}, c.meter.waitFor(cmd.Version)
	case "relist":
		c.resting = atRest()
		resetPeak()
		c.meter.reset(0, true)
		c.cpu = cpu()
		return answer{}, nil
	case "relisted":
		err := c.meter.waitFor(cmd.Version)
		_, peak := memory()
		n, _ := c.meter.rate()
		return answer{Values: map[string]float64{
			"cpu": (cpu() - c.cpu).Seconds(), "growth": float64(peak - c.resting),
			"resting": float64(c.resting), "calls": float64(n - 1),
		}}, err
	case "stop":
		c.peer.stop()
		return answer{}, nil
	}
	return answer{}, fmt.Errorf("cannot do %q", cmd.Do)
}

func (c *child) start(cmd command) (answer, error) {
	c.before = atRest()
	resetPeak()
	c.startProfile(cmd.Profile)
	used, began := cpu(), time.Now()
	err := c.peer.start(context.Background(), target{
		cfg: &rest.Config{Host: cmd.URL, QPS: -1}, corpus: c.corpus, list: cmd.List, paged: cmd.Paged,
	}, c.meter.handle)
	took, spent := time.Since(began), cpu()-used
	c.stopProfile()
	if err != nil {
		return answer{}, err
	}
	if cmd.List { // the other values are measured with a WatchList
		_, peak := memory()
		return answer{Values: map[string]float64{
			"sync": took.Seconds(), "cpu": spent.Seconds(), "peak": float64(peak - c.before),
		}}, nil
	}
	time.Sleep(cmd.Settle) // the memory includes that of background work
	settled := cpu() - used
	_, peak := memory()
	resident := atRest()
	used, began = cpu(), time.Now()
	n := c.peer.readAll()
	reading, readingCPU := time.Since(began), cpu()-used
	return answer{Values: map[string]float64{
		"sync": took.Seconds(), "cpu": spent.Seconds(), "cpuSettled": settled.Seconds(), "peak": float64(peak - c.before),
		"resident": float64(resident - c.before), "objects": float64(n), "readAll": reading.Seconds(),
		"usable": (took + reading).Seconds(), "usableCPU": (settled + readingCPU).Seconds(),
	}}, nil
}

// handlers counts the goroutines that additional idle handlers take.
func (c *child) handlers(cmd command) (answer, error) {
	p, ok := c.peer.(many)
	if !ok {
		return answer{}, fmt.Errorf("the peer takes no more handlers")
	}
	before := runtime.NumGoroutine()
	remove, err := p.handlers(cmd.N)
	defer remove()
	time.Sleep(cmd.Settle) // goroutines for the initial objects end
	return answer{Values: map[string]float64{"goroutines": float64(runtime.NumGoroutine() - before)}}, err
}

func (c *child) startProfile(path string) {
	if path == "" {
		return
	}
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return
	}
	if pprof.StartCPUProfile(f) == nil {
		c.profile = f
	}
}

func (c *child) stopProfile() {
	if c.profile != nil {
		pprof.StopCPUProfile()
		_ = c.profile.Close()
		c.profile = nil
	}
}

// read starts readers that simulate a busy user: they get objects without a pause and list an index.
func (c *child) read() {
	keys := c.peer.keys(1000)
	ctx, cancel := context.WithCancel(context.Background())
	c.stopRead, c.gets = cancel, nil
	if len(keys) == 0 {
		return
	}
	c.readers.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for n := 0; ctx.Err() == nil; n++ {
			begin := time.Now()
			_ = c.peer.get(keys[rnd.IntN(min(100, len(keys)))])
			c.gets = append(c.gets, time.Since(begin))
			if n%100 == 99 {
				time.Sleep(time.Millisecond) // readers do other work, too
			}
		}
	})
	c.readers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			c.peer.byIndex(fmt.Sprint(uint32(i) % buckets))
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// meter is the measuring handler.
type meter struct {
	total   atomic.Int64
	changed chan struct{}

	mu          sync.Mutex
	count       int
	first, end  time.Time
	last, until string // versions: last handled, and waited for
	handled     map[string]int64
	gate        chan struct{}
}

func (m *meter) handle(e event) {
	m.total.Add(1)
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count == 0 {
		m.first = now
	}
	m.count++
	m.end, m.last = now, e.version
	if m.handled != nil {
		m.handled[e.version] = now.UnixNano()
	}
	if e.version == m.until {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// reset restarts the count. times says whether to record the time of each event, which takes memory.
func (m *meter) reset(want int, times bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count, m.last = 0, ""
	m.handled = nil
	if times {
		m.handled = make(map[string]int64, want)
	}
}

const patience = 3 * time.Minute

// waitFor waits until the event with this version, the last written one, was handled.
func (m *meter) waitFor(version string) error {
	m.mu.Lock()
	m.until = version
	m.mu.Unlock()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		m.mu.Lock()
		last, count := m.last, m.count
		m.mu.Unlock()
		if last == version {
			return nil
		}
		select {
		case <-m.changed:
		case <-limit.C:
			return fmt.Errorf("cannot wait any longer: %d events in %s", count, patience)
		}
	}
}

// rate returns the number of events and the time from the first to the last.
func (m *meter) rate() (int, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count, m.end.Sub(m.first)
}

func (m *meter) times() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handled) // the handler may still add to it
}

func (m *meter) block() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gate = make(chan struct{})
}

func (m *meter) unblock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.gate)
	m.gate = nil
}
