package store

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// interner shares strings and shapes. It holds shapes weakly, so that unused ones are collected.
type interner struct {
	seed    maphash.Seed
	mu      sync.Mutex
	strings map[string]string
	shapes  map[uint64][]weak.Pointer[shape]
	sweepAt int
}

// maxStrings bounds the table of shared strings. A full table is cleared, which only costs some sharing.
const maxStrings = 1 << 16

func newInterner() *interner {
	return &interner{
		seed: maphash.MakeSeed(), strings: map[string]string{}, shapes: map[uint64][]weak.Pointer[shape]{},
		sweepAt: 1024,
	}
}

func (t *interner) hashKey(ns, name string) uint64 {
	return maphash.String(t.seed, name) ^ maphash.String(t.seed, ns)*0x9E3779B97F4A7C15
}

// hashOf returns the hash of a key.
func (t *interner) hashOf(k Key) uint64 { return t.hashKey(k.Namespace, k.Name) }

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

// shape returns the shared shape of h.
func (t *interner) shape(h *source.Header) *shape {
	sum := maphash.Bytes(t.seed, h.Namespace)
	for i := range h.Labels { // independent of their order
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
		s.owners = append(s.owners, Owner{
			UID: types.UID(o.UID), APIVersion: t.text(o.APIVersion), Kind: t.text(o.Kind),
			Name: t.text(o.Name), Controller: o.Controller,
		})
	}
	s.siblings = t.siblings(s)
	t.shapes[sum] = append(slices.DeleteFunc(list, func(w weak.Pointer[shape]) bool { return w.Value() == nil }),
		weak.Make(s))
	if len(t.shapes) >= t.sweepAt {
		t.sweep()
	}
	return s
}

// volatile lists, sorted, the labels in which siblings differ.
var volatile = []string{
	"apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
	"batch.kubernetes.io/job-name", "controller-revision-hash", "controller-uid", "job-name", "pod-template-generation",
	"pod-template-hash", "statefulset.kubernetes.io/pod-name",
}

// siblings returns a hash of the labels without the values of volatile ones, and the kinds of owners. Objects with
// equal labels resemble each other in every namespace, such as those of a program that each tenant runs. The hash of
// objects without labels includes the namespace, which may be all that they have in common.
func (t *interner) siblings(s *shape) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	if len(s.labels) == 0 {
		h.WriteString(s.ns)
	}
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

// sweep removes the shapes that were collected. The caller holds t.mu.
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
