package store

import (
	"encoding/hex"
	"hash/maphash"
	"sync/atomic"
	"unsafe"
)

// ident is the identity that all versions of one incarnation of an object share. Indexes hold idents, so a change of an
// object that keeps its labels touches no index.
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

func (i *ident) key() Key { return Key{Namespace: i.ns, Name: i.name()} }

func (i *ident) sameKey(o *ident) bool {
	return i == o || i.hash == o.hash && i.name() == o.name() && i.ns == o.ns
}

// identKeys compares idents by their key.
type identKeys struct{}

func (identKeys) Hash(i *ident) uint64 { return i.hash }

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

func (i *ident) hashUID(seed maphash.Seed) uint64 {
	if i.canonUID {
		return maphash.Bytes(seed, i.uidBits[:])
	}
	return maphash.String(seed, i.text[i.nameLen:])
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

// newIdent returns an ident and its text, in one allocation if the text is at most 64 bytes long. There are as many
// idents as objects, and the garbage collector visits each allocation.
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
