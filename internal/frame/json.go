package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// MaxDepth bounds the nesting of a JSON value, as in encoding/json.
const MaxDepth = 10000

// ErrShort reports that the value continues after the end of the buffer.
var ErrShort = errors.New("value is incomplete")

// SyntaxError describes a syntax error and its offset in the buffer.
type SyntaxError struct {
	Offset int
	Want   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed at byte %d: want %s", e.Offset, e.Want)
}

// Syntax returns the error of a malformed value at index i.
func Syntax(i int, want string) error { return &SyntaxError{Offset: i, Want: want} }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// SkipSpace returns the index of the first byte at or after i that is not JSON white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// stops marks, with the high bit of each byte, the bytes of x that end a run of ordinary string bytes: a quote, a
// backslash, a control character. Only the lowest mark is exact, because of carries into higher ones.
func stops(x uint64) uint64 {
	low := x ^ ones*0x02 // of the bytes above 0x20 only a quote becomes less than 0x21
	slash := x ^ ones*'\\'
	return ((low-ones*0x21)&^low | (slash-ones)&^slash) & highs
}

// SkipString skips the string whose opening quote is b[i]. plain reports that it contains no escape.
func SkipString(b []byte, i int) (end int, plain bool, err error) {
	plain = true
	i++
	for {
		for len(b)-i >= 8 {
			m := stops(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			i++
		}
		if i >= len(b) {
			return i, plain, ErrShort
		}
		switch b[i] {
		case '"':
			return i + 1, plain, nil
		case '\\':
			plain = false
			if i, err = skipEscape(b, i); err != nil {
				return i, false, err
			}
		default:
			return i, plain, Syntax(i, "no control character in a string")
		}
	}
}

// skipText is SkipString for common strings: well inside the buffer and without \u. It returns 0 for others.
//
// Most strings fit into sixteen bytes with their closing quote. Testing sixteen bytes at once costs less than a
// mispredicted branch between two halves.
func skipText(b []byte, i int) int {
	i++
	for i+16 <= len(b) {
		w := b[i : i+16 : i+16]
		m, n := stops(binary.LittleEndian.Uint64(w)), stops(binary.LittleEndian.Uint64(w[8:]))
		at, next := bits.TrailingZeros64(m), 64+bits.TrailingZeros64(n)
		if m == 0 {
			at = next
		}
		if at == 128 {
			i += 16
			continue
		}
		i += at >> 3
		if b[i] == '"' {
			return i + 1
		}
		if b[i] != '\\' || i+1 >= len(b) || b[i+1] != '"' {
			return 0
		}
		i += 2
	}
	return 0
}

func skipEscape(b []byte, i int) (int, error) {
	if i+1 >= len(b) {
		return i, ErrShort
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if j >= len(b) {
				return i, ErrShort
			}
			if !isHex(b[j]) {
				return j, Syntax(j, "hexadecimal digit")
			}
		}
		return i + 6, nil
	}
	return i, Syntax(i, "known escape")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// SkipValue skips the value that starts at b[i], which must not be white space. A number needs a following byte to be
// complete.
func SkipValue(b []byte, i int) (int, error) {
	return skipValue(b, i, 0)
}

// SkipValueAt is SkipValue for a value that is nested depth levels deep.
func SkipValueAt(b []byte, i, depth int) (int, error) {
	return skipValue(b, i, depth)
}

func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, ErrShort
	}
	switch b[i] {
	case '"':
		end, _, err := SkipString(b, i)
		return end, err
	case '{', '[':
		return skipNested(b, i, depth)
	}
	return skipScalar(b, i)
}

// skipNested skips an object or array with one bit per open level. It recurses once every 64 levels.
func skipNested(b []byte, i, depth int) (int, error) {
	var (
		objects uint64 // one bit per open level, the innermost lowest; 1: object, 0: array
		level   int
		err     error
	)
open:
	if level == 64 {
		if i, err = skipNested(b, i, depth+level); err != nil {
			return i, err
		}
		goto after
	}
	if depth+level >= MaxDepth {
		return i, Syntax(i, "at most 10000 levels of nesting")
	}
	level++
	if b[i] == '{' {
		objects = objects<<1 | 1
		if i = space(b, i+1); i >= len(b) {
			return i, ErrShort
		}
		if b[i] != '}' {
			goto key
		}
	} else {
		objects <<= 1
		if i = space(b, i+1); i >= len(b) {
			return i, ErrShort
		}
		if b[i] != ']' {
			goto value
		}
	}
closed:
	i++
	level--
	objects >>= 1
	if level == 0 {
		return i, nil
	}
after:
	if i = space(b, i); i >= len(b) {
		return i, ErrShort
	}
	switch b[i] {
	case ',':
		if i = space(b, i+1); i >= len(b) {
			return i, ErrShort
		}
		if objects&1 == 0 {
			goto value
		}
	case '}':
		if objects&1 == 0 {
			return i, Syntax(i, "comma or ]")
		}
		goto closed
	case ']':
		if objects&1 == 1 {
			return i, Syntax(i, "comma or }")
		}
		goto closed
	default:
		return i, Syntax(i, "comma or end")
	}
key:
	if b[i] != '"' {
		return i, Syntax(i, "name of a member")
	}
	if end := skipText(b, i); end > 0 {
		i = end
	} else if i, _, err = SkipString(b, i); err != nil {
		return i, err
	}
	if i = space(b, i); i >= len(b) {
		return i, ErrShort
	}
	if b[i] != ':' {
		return i, Syntax(i, "colon")
	}
	if i = space(b, i+1); i >= len(b) {
		return i, ErrShort
	}
value:
	switch b[i] {
	case '"':
		if end := skipText(b, i); end > 0 {
			i = end
		} else if i, _, err = SkipString(b, i); err != nil {
			return i, err
		}
	case '{', '[':
		goto open
	default:
		if i, err = skipScalar(b, i); err != nil {
			return i, err
		}
	}
	goto after
}

// space is SkipSpace with an inlined check for the common case of no white space.
func space(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return SkipSpace(b, i)
	}
	return i
}

func skipScalar(b []byte, i int) (int, error) {
	switch c := b[i]; {
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	case c == '-' || '0' <= c && c <= '9':
		return skipNumber(b, i)
	}
	return i, Syntax(i, "value")
}

func skipWord(b []byte, i int, word string) (int, error) {
	for j := range len(word) {
		if i+j >= len(b) {
			return i, ErrShort
		}
		if b[i+j] != word[j] {
			return i + j, Syntax(i+j, word)
		}
	}
	return i + len(word), nil
}

func skipNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		j := skipDigits(b, i)
		if j == i {
			return numberStop(b, i)
		}
		i = j
	}
	if i < len(b) && b[i] == '.' {
		j := skipDigits(b, i+1)
		if j == i+1 {
			return numberStop(b, j)
		}
		i = j
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := skipDigits(b, i)
		if j == i {
			return numberStop(b, i)
		}
		i = j
	}
	if i >= len(b) {
		return i, ErrShort // more digits may follow
	}
	return i, nil
}

func numberStop(b []byte, i int) (int, error) {
	if i >= len(b) {
		return i, ErrShort
	}
	return i, Syntax(i, "digit")
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}
