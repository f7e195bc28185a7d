package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An outcome is the outcome of a spec.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "skipped" // skipped or pending, as the suite says
)

// A result is the result of one run of a suite.
type result struct {
	specs  map[string]outcome
	opened opened
	took   time.Duration
}

// opened counts the objects that the adapter created.
type opened struct{ informers, caches, clients int }

func (o opened) String() string { return fmt.Sprintf("%d, %d, %d", o.informers, o.caches, o.clients) }

func (r *result) count(o outcome) int {
	n := 0
	for _, ended := range r.specs {
		if ended == o {
			n++
		}
	}
	return n
}

func (r *result) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped; informers, caches, clients of ours: %v",
		r.count(passed), r.count(failed), r.count(skipped), r.opened)
}

// add records the outcome of a spec. Specs may have the same name, as those of a table often do.
func (r *result) add(name string, o outcome) {
	unique := name
	for i := 2; ; i++ {
		if _, taken := r.specs[unique]; !taken {
			break
		}
		unique = fmt.Sprintf("%s (%d)", name, i)
	}
	r.specs[unique] = o
}

// read combines the output of a test binary, the report of ginkgo, if any, and the objects that the adapter has
// created.
func read(printed []byte, report, opened string, b *binary) (*result, error) {
	r := &result{specs: map[string]outcome{}}
	r.addTests(printed, b.entries)
	specs, err := os.ReadFile(report)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the suite has no ginkgo specs, or it crashed
	case err != nil:
		return nil, err
	default:
		if err := r.addSpecs(specs); err != nil {
			return nil, fmt.Errorf("cannot read ginkgo's report %s: %w", report, err)
		}
	}
	lines, err := os.ReadFile(opened)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(lines)) {
		switch what, kind, _ := strings.Cut(line, " "); {
		case what == "client": // a client of controller-runtime with our transport
			r.opened.clients++
		case !strings.HasPrefix(kind, "*controllerruntime."):
		case what == "informer":
			r.opened.informers++
		case what == "cache":
			r.opened.caches++
		}
	}
	return r, nil
}

var testEnd = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// addTests records the tests of package testing without subtests, from the output of -test.v.
func (r *result) addTests(printed []byte, entries map[string]bool) {
	outcomes := map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": skipped}
	ended := map[string]outcome{}
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if found := testEnd.FindSubmatch(lines.Bytes()); found != nil {
			ended[string(found[2])] = outcomes[string(found[1])]
		}
	}
	for name, o := range ended {
		top, _, _ := strings.Cut(name, "/")
		if entries[top] {
			continue
		}
		hasTests := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(ended)), hasTests) {
			r.add(name, o)
		}
	}
}

// addSpecs records the specs of ginkgo, and the failures of nodes such as BeforeSuite.
func (r *result) addSpecs(report []byte) error {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
		}
	}
	if err := json.Unmarshal(report, &suites); err != nil {
		return err
	}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			o := failed // also timed out, panicked, interrupted and aborted
			switch spec.State {
			case "passed":
				o = passed
			case "skipped", "pending":
				o = skipped
			}
			if spec.LeafNodeType != "It" {
				if o == failed {
					r.add(spec.LeafNodeType, failed)
				}
				continue
			}
			r.add(strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "), o)
		}
	}
	return nil
}
