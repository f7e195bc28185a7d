package hostile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/seed"
)

const (
	// maxMemory bounds the memory of the controller, in bytes.
	maxMemory = 512 << 20
	// factor bounds the latency of the victim's operations relative to that without an attack, and maxLatency bounds it in
	// any case. Times below floor depend on the scheduler of the machine, which attackers and receivers share.
	factor     = 5
	maxLatency = 2 * time.Second
	floor      = 500 * time.Millisecond
	// patience is how long the victim waits for its unfinished operations after the attack.
	patience = 30 * time.Second
)

// tempo is the duration and pace of an attack.
type tempo struct {
	lasts, interval time.Duration // of an attack; between two operations of the victim
	outliers        float64       // the share of operations that may take longer
	slack           float64       // the allowed latency of the victim, relative to the reference
}

var (
	// A short run shares its machine with other tests and plays several attacks at a time. So one operation in four may be
	// an outlier, and the bar is twice as high. The faults that it is to find delay all operations by many seconds, or
	// forever.
	short = tempo{lasts: 4 * time.Second, interval: 150 * time.Millisecond, outliers: 0.25, slack: 2 * factor}
	long  = tempo{lasts: 20 * time.Second, interval: 200 * time.Millisecond, outliers: 0.02, slack: factor}
)

// TestHostileTenants plays the attacks that the package describes.
func TestHostileTenants(t *testing.T) {
	all, pace, lasts := attacks(), short, time.Duration(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if soak := os.Getenv("FAIRLEAD_SOAK"); soak != "" {
		d, err := time.ParseDuration(soak)
		if err != nil {
			t.Fatal(err)
		}
		pace, lasts = long, d
	}
	only := os.Getenv("FAIRLEAD_HOSTILE")
	if only != "" {
		chosen, err := regexp.Compile(only)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(a attack) bool { return !chosen.MatchString(a.name) })
	}
	var games [][]attack
	switch {
	case only != "" || lasts > 0:
		for _, a := range all {
			games = append(games, []attack{a})
		}
	default:
		for group := 1; group < groups; group++ {
			games = append(games, slices.DeleteFunc(slices.Clone(all), func(a attack) bool { return a.group != group }))
		}
	}
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		s := newStage(ctx, t)
		idle := s.idle(pace)
		begun := time.Now()
		for round := 0; round == 0 || time.Since(begun) < lasts && !t.Failed(); round++ {
			for i, game := range games {
				if len(game) == 1 {
					t.Run(game[0].name, func(t *testing.T) { s.play(t, seed, fmt.Sprint(round, "-", i), game, pace, idle) })
					continue
				}
				t.Run(fmt.Sprint("Group", i+1), func(t *testing.T) { s.play(t, seed, fmt.Sprint(round, "-", i), game, pace, idle) })
			}
		}
	})
}

// calm has the latency of the victim's operations without attacks, as measured and without waits for a processor.
type calm struct{ took, own time.Duration }

// idle measures the victim without attacks.
func (s *stage) idle(pace tempo) calm {
	s.t.Helper()
	s.victim.forget()
	warm, cancel := context.WithTimeout(s.ctx, time.Second)
	s.victim.live(warm, pace.interval, patience)
	cancel()
	s.victim.forget()
	ctx, cancel := context.WithTimeout(s.ctx, pace.lasts)
	defer cancel()
	processor := s.controller.processor()
	took, problems := s.victim.live(ctx, pace.interval, patience)
	stretch := s.controller.processor().stretch(processor)
	if len(problems) > 0 {
		s.t.Fatalf("without any attack: %q", problems)
	}
	p99 := quantile(append(took[hookGood], took[hookCallback]...), 0.01)
	s.t.Logf("idle: an operation takes up to %v, the reference up to %v, stretch %.1f, the controller has %d MiB",
		p99.Round(time.Millisecond), quantile(took[kindReference], 0.01).Round(time.Millisecond), stretch,
		s.controller.resident()>>20)
	return calm{took: p99, own: time.Duration(float64(p99) / stretch)}
}

// quantile returns the value that all but a part of the values do not exceed.
func quantile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)-1-int(float64(len(values))*part)]
}

// play runs attacks at the same time, and judges the victim.
func (s *stage) play(t *testing.T, seeded uint64, id string, game []attack, pace tempo, idle calm) {
	select {
	case <-s.controller.ended:
		t.Fatalf("the controller has ended: %v\n%s", s.controller.cmd.ProcessState, s.controller.log())
	default:
	}
	attacking, cancel := context.WithCancel(s.ctx)
	defer cancel()
	watching, watched := context.WithCancel(s.ctx)
	defer watched()
	memory := make(chan int, 1)
	go func() { memory <- s.controller.peak(watching) }()
	logged, processor := s.controller.logged(), s.controller.processor()
	s.victim.forget()
	var tenants []*tenant
	var playing sync.WaitGroup
	for i, attack := range game {
		a := s.tenant(t, attacking, fmt.Sprint("attacker-", id, "-", i), seed.Rand(seeded, attack.name, id))
		tenants = append(tenants, a)
		playing.Go(func() { attack.play(a) })
	}
	playing.Go(func() {
		defer cancel()
		pause(attacking, pace.lasts)
		for until := time.Now().Add(patience); time.Now().Before(until) && slices.ContainsFunc(tenants, (*tenant).idle); {
			pause(attacking, 50*time.Millisecond) // the machine is so busy that the attack has done nothing yet
		}
	})
	took, problems := s.victim.live(attacking, pace.interval, patience)
	playing.Wait()
	stretch := s.controller.processor().stretch(processor)
	ending, ended := context.WithTimeout(s.ctx, patience)
	defer ended()
	for i, a := range tenants {
		for _, problem := range a.judge(ending) {
			t.Errorf("%s: %s", game[i].name, problem)
		}
		if game[i].check != nil {
			for _, problem := range game[i].check(a) {
				t.Errorf("%s: %s", game[i].name, problem)
			}
		}
		blows, refused := a.dealt()
		if blows == 0 {
			t.Errorf("%s was not played: %v", game[i].name, refused)
		}
		t.Logf("%s: %d blows, refused: %v", game[i].name, blows, refused)
	}
	watched()
	if slices.ContainsFunc(game, func(a attack) bool { return a.writes }) {
		pace.outliers = 0.5
	}
	s.judge(t, took, problems, pace, idle, stretch, <-memory, s.controller.logged()-logged)
	leaving, left := context.WithTimeout(s.ctx, pace.lasts)
	defer left()
	for _, a := range tenants {
		playing.Go(func() {
			if err := a.leave(leaving); err != nil {
				t.Logf("a part of an attack remains: %v", err)
			}
		})
	}
	playing.Wait()
}

// tenant creates an attacker.
func (s *stage) tenant(
	t *testing.T, ctx context.Context, namespace string, rnd *rand.Rand, //nolint:revive // the test comes first
) *tenant {
	config := s.identity(namespace, "tenant")
	return &tenant{
		t: t, s: s, ctx: ctx, namespace: namespace, calls: s.caller(config), clients: kubernetes.NewForConfigOrDie(config),
		token: config.BearerToken,
		rnd:   rnd, refused: map[string]int{}, fates: map[string]string{},
	}
}

// judge compares the victim's latency with that without the attack.
func (s *stage) judge(
	t *testing.T, took map[string][]time.Duration, problems []string, pace tempo, idle calm, stretch float64,
	memory, logged int,
) {
	t.Helper()
	select {
	case <-s.controller.ended:
		t.Fatalf("the controller has ended: %v\n%s", s.controller.cmd.ProcessState, s.controller.log())
	default:
	}
	reference := quantile(took[kindReference], pace.outliers)
	bar := max(min(factor*idle.took, maxLatency), time.Duration(pace.slack*float64(reference)), floor)
	own := max(min(factor*idle.own, maxLatency), floor).Seconds() * pace.slack / factor
	bar = max(bar, min(time.Duration(stretch*own*float64(time.Second)), patience/2))
	var line strings.Builder
	for _, kind := range []string{hookGood, hookCallback, kindStream} {
		operations := took[kind]
		worst := quantile(operations, pace.outliers)
		fmt.Fprintf(&line, "%s %v (median %v, of %d), ", kind, worst.Round(time.Millisecond),
			quantile(operations, 0.5).Round(time.Millisecond), len(operations))
		if worst > bar {
			t.Errorf("the victim's operations (%s) but for %v of them took up to %v, more than %v (idle %v, reference %v, "+
				"stretch %.1f)", kind, pace.outliers, worst, bar, idle.took, reference, stretch)
		}
	}
	t.Logf("%sreference %v, stretch %.1f, bar %v, memory %d MiB, log %d KiB", line.String(),
		reference.Round(time.Millisecond), stretch, bar.Round(time.Millisecond), memory>>20, logged>>10)
	if memory > maxMemory {
		t.Errorf("the controller had %d MiB", memory>>20)
	}
	for _, problem := range problems {
		t.Errorf("the victim: %s", problem)
	}
}
