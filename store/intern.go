package store

import (
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/source"
)

// ident is what all versions of one incarnation of an object share. Indexes hold idents, so that a change of an object
// that keeps its labels touches no index.
type ident struct {
	ns       string
	text     string // the name, then the uid if it is not a canonical UUID
	uidBits  [16]byte
	hash     uint64        // of the key
	mark     atomic.Uint32 // the last replacement that listed it
	nameLen  uint16
	canonUID bool
}

func (i *ident) name() string { return i.text[:i.nameLen] }
func (i *ident) key() Key     { return Key{Namespace: i.ns, Name: i.name()} }

func (i *ident) sameKey(o *ident) bool {
	return i == o || i.hash == o.hash && i.name() == o.name() && i.ns == o.ns
}

// identKeys has idents found by their key.
type identKeys struct{}

func (identKeys) Hash(i *ident) uint64  { return i.hash }
func (identKeys) Same(a, b *ident) bool { return a.sameKey(b) }

func (i *ident) is(k Key) bool { return i.name() == k.Name && i.ns == k.Namespace }

func (i *ident) uid() string {
	if !i.canonUID {
		return i.text[i.nameLen:]
	}
	var b [36]byte
	hex.Encode(b[:8], i.uidBits[:4])
	hex.Encode(b[9:13], i.uidBits[4:6])
	hex.Encode(b[14:18], i.uidBits[6:8])
	hex.Encode(b[19:23], i.uidBits[8:10])
	hex.Encode(b[24:], i.uidBits[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

func (i *ident) sameUID(o *ident) bool {
	if i == o {
		return true
	}
	if i.canonUID != o.canonUID {
		return false
	}
	if i.canonUID {
		return i.uidBits == o.uidBits
	}
	return i.text[i.nameLen:] == o.text[o.nameLen:]
}

// hasUID compares with the text of a uid, without allocating.
func (i *ident) hasUID(uid []byte) bool {
	if bits, ok := parseUID(uid); ok {
		return i.canonUID && i.uidBits == bits
	}
	return !i.canonUID && i.text[i.nameLen:] == string(uid)
}

// parseUID reads a UUID in its canonical lower-case form.
func parseUID(b []byte) (out [16]byte, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return out, false
	}
	j := 0
	for i := 0; i < 36; {
		if b[i] == '-' {
			i++
			continue
		}
		hi, ok1 := hexDigit(b[i])
		lo, ok2 := hexDigit(b[i+1])
		if !ok1 || !ok2 {
			return out, false
		}
		out[j] = hi<<4 | lo
		j, i = j+1, i+2
	}
	return out, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// labelSet is the labels of an object in the order of their keys; it implements labels.Labels.
type labelSet []Label

func (s *labelSet) Lookup(key string) (string, bool) {
	for i := range *s {
		if (*s)[i].Key == key {
			return (*s)[i].Value, true
		}
	}
	return "", false
}

func (s *labelSet) Has(key string) bool   { _, ok := s.Lookup(key); return ok }
func (s *labelSet) Get(key string) string { v, _ := s.Lookup(key); return v }

// shape is what siblings have in common: namespace, labels and owners. The pods of one ReplicaSet are one shape.
// Namespace, label and owner indexes are sets of shapes, and shapes are interned: one pointer for each.
type shape struct {
	ns     string
	labels labelSet
	owners []Owner
	hash   uint64
	// siblings is a hash of what is stable of it: objects of one such hash resemble each other, see package pack.
	siblings uint64
}

// shapeKeys has shapes found by themselves: there is one of each.
type shapeKeys struct{}

func (shapeKeys) Hash(s *shape) uint64  { return s.hash }
func (shapeKeys) Same(a, b *shape) bool { return a == b }

// interner shares strings and shapes. Shapes are kept weakly: one that no record uses any more goes away.
type interner struct {
	seed    maphash.Seed
	mu      sync.Mutex
	strings map[string]string
	shapes  map[uint64][]weak.Pointer[shape]
	sweepAt int
}

// maxStrings bounds the table of shared strings; when it is full it starts anew, which only costs some sharing.
const maxStrings = 1 << 16

func newInterner() *interner {
	return &interner{seed: maphash.MakeSeed(), strings: map[string]string{}, shapes: map[uint64][]weak.Pointer[shape]{}, sweepAt: 1024}
}

func (t *interner) hashKey(ns, name string) uint64 {
	return maphash.String(t.seed, name) ^ maphash.String(t.seed, ns)*0x9E3779B97F4A7C15
}

func (t *interner) hashKeyBytes(ns, name []byte) uint64 {
	return maphash.Bytes(t.seed, name) ^ maphash.Bytes(t.seed, ns)*0x9E3779B97F4A7C15
}

// text returns b as a shared string; the caller holds t.mu.
func (t *interner) text(b []byte) string {
	if s, ok := t.strings[string(b)]; ok {
		return s
	}
	if len(t.strings) >= maxStrings {
		clear(t.strings)
	}
	s := string(b)
	t.strings[s] = s
	return s
}

// shape returns the one shape of h.
func (t *interner) shape(h *source.Header) *shape {
	sum := maphash.Bytes(t.seed, h.Namespace)
	for i := range h.Labels { // in any order
		sum += t.hashKeyBytes(h.Labels[i].Key, h.Labels[i].Value)
	}
	for i := range h.Owners {
		sum = sum*0x100000001b3 ^ maphash.Bytes(t.seed, h.Owners[i].UID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.shapes[sum]
	for _, w := range list {
		if s := w.Value(); s != nil && s.matches(h) {
			return s
		}
	}
	s := &shape{ns: t.text(h.Namespace), hash: sum}
	if len(h.Labels) > 0 {
		s.labels = make(labelSet, 0, len(h.Labels))
	}
	for i := range h.Labels {
		s.labels = append(s.labels, Label{Key: t.text(h.Labels[i].Key), Value: t.text(h.Labels[i].Value)})
	}
	slices.SortFunc(s.labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	for i := range h.Owners {
		o := &h.Owners[i]
		s.owners = append(s.owners, Owner{UID: types.UID(o.UID), APIVersion: t.text(o.APIVersion), Kind: t.text(o.Kind), Name: t.text(o.Name), Controller: o.Controller})
	}
	s.siblings = t.siblings(s)
	t.shapes[sum] = append(slices.DeleteFunc(list, func(w weak.Pointer[shape]) bool { return w.Value() == nil }), weak.Make(s))
	if len(t.shapes) >= t.sweepAt {
		t.sweep()
	}
	return s
}

// volatile are the labels in which siblings differ.
var volatile = []string{
	"apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
	"batch.kubernetes.io/job-name", "controller-revision-hash", "controller-uid", "job-name", "pod-template-generation",
	"pod-template-hash", "statefulset.kubernetes.io/pod-name",
}

// siblings returns a hash of what siblings have in common: namespace, stable labels, kinds of owners.
func (t *interner) siblings(s *shape) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	h.WriteString(s.ns)
	for _, l := range s.labels {
		h.WriteByte(0)
		h.WriteString(l.Key)
		if _, skip := slices.BinarySearchFunc(volatile, l.Key, strings.Compare); !skip {
			h.WriteByte('=')
			h.WriteString(l.Value)
		}
	}
	for i := range s.owners {
		h.WriteByte(1)
		h.WriteString(s.owners[i].Kind)
	}
	return h.Sum64()
}

// sweep forgets the shapes that are gone; the caller holds t.mu.
func (t *interner) sweep() {
	for h, list := range t.shapes {
		list = slices.DeleteFunc(list, func(w weak.Pointer[shape]) bool { return w.Value() == nil })
		if len(list) == 0 {
			delete(t.shapes, h)
		} else {
			t.shapes[h] = list
		}
	}
	t.sweepAt = max(1024, 2*len(t.shapes))
}

func (s *shape) matches(h *source.Header) bool {
	if len(s.labels) != len(h.Labels) || len(s.owners) != len(h.Owners) || s.ns != string(h.Namespace) {
		return false
	}
	for i := range h.Labels {
		l := &h.Labels[i]
		// Servers sort labels; the search is for those that do not.
		if s.labels[i].Key == string(l.Key) {
			if s.labels[i].Value != string(l.Value) {
				return false
			}
			continue
		}
		if v, ok := s.labels.Lookup(string(l.Key)); !ok || v != string(l.Value) {
			return false
		}
	}
	for i := range h.Owners {
		a, b := &s.owners[i], &h.Owners[i]
		if a.Controller != b.Controller || string(a.UID) != string(b.UID) || a.Name != string(b.Name) || a.Kind != string(b.Kind) || a.APIVersion != string(b.APIVersion) {
			return false
		}
	}
	return true
}

// ident makes the identity of a new incarnation.
func (t *interner) ident(h *source.Header, ns string) *ident {
	uid := h.UID
	bits, canon := parseUID(uid)
	if canon {
		uid = nil
	}
	id := newIdent(h.Name, uid)
	id.ns, id.hash, id.nameLen = ns, t.hashKeyBytes(h.Namespace, h.Name), uint16(len(h.Name))
	id.uidBits, id.canonUID = bits, canon
	return id
}

// newIdent returns one with its text behind it, in the same piece of memory if the text is not very long: there are as many of
// them as objects, and the garbage collector looks at each piece.
func newIdent(name, uid []byte) *ident {
	var id *ident
	var place []byte
	switch n := len(name) + len(uid); {
	case n == 0:
		return &ident{}
	case n <= 16:
		x := &struct {
			ident
			text [16]byte
		}{}
		id, place = &x.ident, x.text[:n]
	case n <= 32:
		x := &struct {
			ident
			text [32]byte
		}{}
		id, place = &x.ident, x.text[:n]
	case n <= 48:
		x := &struct {
			ident
			text [48]byte
		}{}
		id, place = &x.ident, x.text[:n]
	case n <= 64:
		x := &struct {
			ident
			text [64]byte
		}{}
		id, place = &x.ident, x.text[:n]
	default:
		id, place = &ident{}, make([]byte, n)
	}
	copy(place[copy(place, name):], uid)
	id.text = unsafe.String(&place[0], len(place))
	return id
}
