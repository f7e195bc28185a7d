package store

import (
	"strconv"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// version is a resource version. A well-formed one of at most 18 digits is a number (KEP-5504); any other one is text.
// The zero value means "no version".
type version struct {
	num  uint64
	text *string
}

func parseVersion[B ~[]byte | ~string](b B) version {
	if len(b) == 0 {
		return version{}
	}
	if len(b) <= 18 && b[0] != '0' {
		var n uint64
		for i := 0; i < len(b); i++ {
			d := b[i] - '0'
			if d > 9 {
				n = 0
				break
			}
			n = n*10 + uint64(d)
		}
		if n != 0 {
			return version{num: n}
		}
	}
	s := string(b)
	return version{text: &s}
}

func (v version) isZero() bool { return v.num == 0 && v.text == nil }

func (v version) String() string {
	switch {
	case v.text != nil:
		return *v.text
	case v.num == 0:
		return ""
	}
	return strconv.FormatUint(v.num, 10)
}

func (v version) equal(w version) bool {
	if v.text == nil || w.text == nil {
		return v == w
	}
	return *v.text == *w.text
}

// compare orders two versions. ok is false if they cannot be ordered; then only equality has a meaning.
func (v version) compare(w version) (order int, ok bool) {
	if v.num != 0 && w.num != 0 {
		switch {
		case v.num < w.num:
			return -1, true
		case v.num > w.num:
			return 1, true
		}
		return 0, true
	}
	if v.equal(w) {
		return 0, true
	}
	return resourceversion.Compare(v.String(), w.String())
}

// atLeast reports whether v is known to be w or newer.
func (v version) atLeast(w version) bool {
	order, ok := v.compare(w)
	return ok && order >= 0
}

// newer reports whether v is known to be newer than w.
func (v version) newer(w version) bool {
	order, ok := v.compare(w)
	return ok && order > 0
}
