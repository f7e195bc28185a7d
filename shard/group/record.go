package group

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

// recordFormat is the newest format of a record. Format 2 has generations of coverages, and format 3 boundaries of the
// slots. A record without them has format 1, which programs of the former release read.
const (
	recordFormat = boundsFormat
	boundsFormat = 3
)

// record is the decoded annotation of a group. Only one goroutine may use it at a time; clone copies it.
type record struct {
	layout  shard.Layout
	leader  string // namespace/name of Options.Leader; "" if there is none
	rev     int64  // counts the changes
	sum     string // checksum of the encoded record, to detect edits by hand
	founded string // uid of the group Lease in which slots may be held; "" if in none
	members []member
	slots   []slot
	// goal has the boundaries that the layout is to have, while they change; see moveBoundaries. It is the zero value
	// otherwise. Only its starts count.
	goal shard.Layout
}

// member is an incarnation of a member.
type member struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // not unique
	Weight  int       `json:"weight"`
	Since   time.Time `json:"since"` // by the clock of that member
	Leaving bool      `json:"leaving,omitempty"`
	// Coverage is the generation of the kinds of the member. Newer generations are higher.
	Coverage int `json:"coverage,omitempty"`
}

// slot has the IDs of the holder and the target of a slot; "" if there is none.
type slot struct{ holder, next string }

// wire is the encoding of a record in the annotation.
type wire struct {
	Format  int          `json:"format"`
	Rev     int64        `json:"rev"`
	Of      int          `json:"of"`
	By      string       `json:"by"`
	Leader  string       `json:"leader,omitempty"`
	Founded string       `json:"founded,omitempty"`
	Members []wireMember `json:"members"`
	Bounds  *wireBounds  `json:"boundaries,omitempty"` // nil: the ranges are equal, and stay so
	Sum     string       `json:"sum"`
}

type wireMember struct {
	member
	Holds string `json:"holds,omitempty"` // slots, as of shard.Set.String
	Next  string `json:"next,omitempty"`
}

// fresh returns a record without members.
func fresh(l shard.Layout, leader string) *record {
	return &record{layout: equalRanges(l), leader: leader, slots: make([]slot, l.Len())}
}

func (r *record) clone() *record {
	c := *r
	c.members = append([]member(nil), r.members...)
	c.slots = append([]slot(nil), r.slots...)
	return &c
}

// format returns the oldest format that has everything in the record.
func (r *record) format() int {
	switch {
	case encodeBounds(r.layout, r.goal) != nil:
		return boundsFormat
	case r.newest() > 0:
		return 2
	}
	return 1
}

// encode returns the encoding of a record, and sets its sum.
func (r *record) encode() string {
	w := wire{
		Format: r.format(), Rev: r.rev, Of: len(r.slots), By: r.layout.By.String(), Leader: r.leader,
		Founded: r.founded, Members: []wireMember{}, Bounds: encodeBounds(r.layout, r.goal),
	}
	for _, m := range r.members {
		w.Members = append(w.Members, wireMember{m, r.heldBy(m.ID).String(), r.targetsOf(m.ID).String()})
	}
	r.sum = w.sum()
	w.Sum = r.sum
	text, _ := json.Marshal(w) // marshaling these types cannot fail
	return string(text)
}

// sum returns a hash of all fields but Sum.
func (w wire) sum() string {
	w.Sum = ""
	text, _ := json.Marshal(w)
	h := fnv.New64a()
	_, _ = h.Write(text)
	return strconv.FormatUint(h.Sum64(), 16)
}

// errFormat is the error for a record that a newer version of the program has written. The record must not be changed.
type errFormat int

func (e errFormat) Error() string {
	return fmt.Sprintf("cannot read the record of the group: it has format %d, this program writes %d", int(e),
		recordFormat)
}

func (e errFormat) Unwrap() error { return errRecord }

// decode parses a record. Its errors match errRecord.
func decode(text string) (*record, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("cannot read the record of the group: %w: %s", errRecord, fmt.Sprintf(format, args...))
	}
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return nil, bad("%v", err)
	}
	if w.Format > recordFormat {
		return nil, errFormat(w.Format)
	}
	if w.Format < 1 {
		return nil, bad("it has format %d", w.Format)
	}
	by, err := shard.ParseBy(w.By)
	if err != nil {
		return nil, bad("%v", err)
	}
	layout := shard.Layout{By: by, Slots: w.Of}
	if err := layout.Check(); err != nil || w.Of == 0 {
		return nil, bad("it has %d slots", w.Of)
	}
	r := fresh(layout, w.Leader)
	r.rev, r.founded, r.sum = w.Rev, w.Founded, w.Sum
	if r.layout, r.goal, err = w.Bounds.decode(r.layout); err != nil {
		return nil, bad("%v", err)
	}
	seen := map[string]bool{}
	for _, m := range w.Members {
		if m.ID == "" || seen[m.ID] || m.Weight < 1 || m.Weight > maxWeight || m.Coverage < 0 {
			return nil, bad("member %q is there twice, or has weight %d or coverage %d", m.ID, m.Weight, m.Coverage)
		}
		seen[m.ID] = true
		r.members = append(r.members, m.member)
		if err := r.fill(m.Holds, func(s *slot) *string { return &s.holder }, m.ID); err != nil {
			return nil, bad("%v", err)
		}
		if err := r.fill(m.Next, func(s *slot) *string { return &s.next }, m.ID); err != nil {
			return nil, bad("%v", err)
		}
	}
	if w.Sum != w.sum() {
		return nil, bad("it was edited")
	}
	return r, nil
}

// fill sets the holder or the target of the slots in text to id. It fails if a slot is already assigned.
func (r *record) fill(text string, of func(*slot) *string, id string) error {
	set, err := parseSet(r.layout, text)
	if err != nil {
		return err
	}
	for i := range set.Slots() {
		who := of(&r.slots[i])
		if *who != "" {
			return fmt.Errorf("slot %d is of %s and of %s", i, *who, id)
		}
		*who = id
	}
	return nil
}

// parseSet is the inverse of shard.Set.String.
func parseSet(l shard.Layout, text string) (shard.Set, error) {
	set := l.Set()
	if text == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to >= l.Len() {
			return set, fmt.Errorf("%q is no set of slots", text)
		}
		for i := from; i <= to; i++ {
			set = set.Union(l.Set(i))
		}
	}
	return set, nil
}

func (r *record) member(id string) *member {
	for i := range r.members {
		if r.members[i].ID == id {
			return &r.members[i]
		}
	}
	return nil
}

func (r *record) heldBy(id string) shard.Set {
	return r.where(func(s slot) bool { return s.holder == id })
}

// gives reports whether the record gives all of the slots to a member, with the ranges that they have there.
func (r *record) gives(id string, slots shard.Set) bool {
	return slots.IsEmpty() || r.fits(slots) && slots.Minus(r.heldBy(id)).IsEmpty()
}

func (r *record) targetsOf(id string) shard.Set {
	return r.where(func(s slot) bool { return s.next == id })
}

func (r *record) where(is func(slot) bool) shard.Set {
	var in []int
	for i, s := range r.slots {
		if is(s) {
			in = append(in, i)
		}
	}
	return r.layout.Set(in...)
}

// newest returns the highest generation of a coverage of the members.
func (r *record) newest() (n int) {
	for _, m := range r.members {
		n = max(n, m.Coverage)
	}
	return n
}

// normalize subtracts the lowest generation of a member from all of them. So only the record of a group whose members
// cover different kinds has generations, and needs the newer format.
func (r *record) normalize() {
	if len(r.members) == 0 {
		return
	}
	least := r.members[0].Coverage
	for _, m := range r.members {
		least = min(least, m.Coverage)
	}
	for i := range r.members {
		r.members[i].Coverage -= least
	}
}

// drop removes a member and frees its slots. The member must be dead, or have lost all slots.
func (r *record) drop(id string) {
	r.members = slices.DeleteFunc(r.members, func(m member) bool { return m.ID == id })
	for i := range r.slots {
		s := &r.slots[i]
		if s.holder == id {
			s.holder = ""
		}
		if s.next == id {
			s.next = ""
		}
	}
}

// dropHolders removes the members that hold slots. A member that is not in the record loses its slots at once.
func (r *record) dropHolders() {
	for _, m := range slices.Clone(r.members) {
		if !r.heldBy(m.ID).IsEmpty() {
			r.drop(m.ID)
		}
	}
}

// free reports whether no slot has a holder.
func (r *record) free() bool {
	return !slices.ContainsFunc(r.slots, func(s slot) bool { return s.holder != "" })
}

// claim makes a member the holder and the target of those of its slots that have no holder.
func (r *record) claim(id string, slots shard.Set) {
	for i := range slots.In(r.layout).Slots() {
		if r.slots[i].holder == "" {
			r.slots[i] = slot{id, id}
		}
	}
}
