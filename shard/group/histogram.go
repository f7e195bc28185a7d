package group

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// maxPoints bounds the points of a histogram, so that its annotation has at most 4 KiB.
const maxPoints = 64

// point is a number of objects whose namespaces have a hash of at most hash, and more than that of the point before.
type point struct {
	hash    uint64
	objects int
}

// histogram states in a member's Lease how many objects the member holds, by the hash of their namespaces. It serves
// all members, since none needs the right to list namespaces for it.
type histogram struct {
	Version int64  `json:"version"` // of the boundaries of the slots
	Slots   string `json:"slots"`   // that were counted, as of shard.Set.String
	Points  string `json:"points"`  // hash:objects, ascending, separated by commas; the hashes are hexadecimal
	// Largest is the namespace with the most objects, and Objects is their number.
	Largest string `json:"largest"`
	Objects int    `json:"objects"`
}

// newHistogram returns the histogram of the objects of slots.
func newHistogram(byNamespace map[string]int, of shard.Set) *histogram {
	h := &histogram{Version: of.Layout().Version(), Slots: of.String()}
	var points []point
	total := 0
	for namespace, objects := range byNamespace {
		if objects == 0 {
			continue
		}
		points = append(points, point{shard.Hash(namespace), objects})
		total += objects
		if objects > h.Objects || objects == h.Objects && namespace < h.Largest {
			h.Largest, h.Objects = namespace, objects
		}
	}
	var texts []string
	for _, p := range condense(points, total) {
		texts = append(texts, strconv.FormatUint(p.hash, 16)+":"+strconv.Itoa(p.objects))
	}
	h.Points = strings.Join(texts, ",")
	return h
}

// condense sorts points, and merges neighbors until there are at most maxPoints. A point with more than a share of
// 2/maxPoints is not merged, so that boundaries can separate it.
func condense(points []point, total int) []point {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	if len(points) <= maxPoints {
		return points
	}
	var merged []point
	for _, p := range points {
		// Two neighbors together have more than 2/maxPoints of the total, so there are at most maxPoints.
		if last := len(merged) - 1; last >= 0 && (merged[last].objects+p.objects)*maxPoints <= 2*total {
			merged[last] = point{p.hash, merged[last].objects + p.objects}
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// census counts the objects that a member holds, at most once in a while. It is safe for concurrent use.
type census struct {
	objects func() (byNamespace map[string]int, of shard.Set) // of Group.Cover; nil: not known
	held    func() shard.Set
	by      shard.By
	now     func() time.Time
	every   time.Duration

	mu   sync.Mutex
	last count
}

// count is a result of counting.
type count struct {
	at        time.Time  // zero if the number is not known for of
	of        shard.Set  // held at that time
	load      *int       // as last known; nil: not known yet
	histogram *histogram // nil: not known now, or not by namespace
}

// censusPeriods is the number of renewals for which a count serves.
const censusPeriods = 5

// take returns the number of objects, as last known, and their histogram. Each is nil if it is not known.
func (c *census) take() (load *int, h *histogram) {
	if c.objects == nil {
		return nil, nil
	}
	held := c.held()
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last.at.IsZero() || last.of != held || c.now().Sub(last.at) >= c.every {
		last = c.count(held, last.load)
		c.mu.Lock()
		c.last = last
		c.mu.Unlock()
	}
	return last.load, last.histogram
}

// count counts the objects of held slots. load is the last known number.
func (c *census) count(held shard.Set, load *int) count {
	n := count{of: held, load: load}
	byNamespace, of := c.objects()
	if byNamespace == nil {
		return n
	}
	sum := 0
	for _, objects := range byNamespace {
		sum += objects
	}
	n.load = &sum
	if !sameDivision(of.Layout(), held.Layout()) || of.In(held.Layout()) != held {
		return n // the stores do not follow yet
	}
	if n.at = c.now(); c.by == shard.Namespace {
		n.histogram = newHistogram(byNamespace, held)
	}
	return n
}

// encode returns the annotation.
func (h *histogram) encode() string {
	text, _ := json.Marshal(h) // marshaling this type cannot fail
	return string(text)
}

// histogramOf returns the histogram of a Lease, and its points. ok is false if the Lease has none that a member writes.
func histogramOf(l *lease) (h histogram, points []point, ok bool) {
	if l == nil || json.Unmarshal([]byte(l.Annotations[histogramAnnotation]), &h) != nil {
		return h, nil, false
	}
	points, err := parsePoints(h.Points)
	return h, points, err == nil && h.Objects >= 0
}

func parsePoints(text string) (points []point, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		hash, objects, _ := strings.Cut(part, ":")
		h, err := strconv.ParseUint(hash, 16, 64)
		n, err2 := strconv.ParseUint(objects, 10, 32) // the sum of maxPoints numbers fits into an int
		if err != nil || err2 != nil || len(points) == maxPoints || len(points) > 0 && points[len(points)-1].hash >= h {
			return nil, fmt.Errorf("%q is no point of a histogram", part)
		}
		points = append(points, point{h, int(n)})
	}
	return points, nil
}
