package decodable

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// plainDigits is the number of digits that a float64 can hold without overflow, if the number has no exponent.
const plainDigits = 300

// text checks the string at c.i.
func (c *check) text(p *plan) bool {
	s, plain, ok := c.string()
	if !ok {
		return false
	}
	switch p.takes {
	case text, free, intOrText:
		return true
	case base64:
		return plain && isBase64(s)
	case date:
		return plain && isDate(s)
	case microDate:
		_, err := time.Parse(metav1.RFC3339Micro, string(s))
		return plain && err == nil
	case duration:
		_, err := time.ParseDuration(string(s))
		return plain && err == nil
	case quantity:
		return plain && isQuantity(s)
	}
	return false
}

// number checks the value at c.i, which should be a number.
func (c *check) number(p *plan) bool {
	if first := c.b[c.i]; first != '-' && (first < '0' || first > '9') {
		return false
	}
	end, err := frame.SkipValue(c.b, c.i)
	if err != nil {
		return false
	}
	s := c.b[c.i:end]
	c.i = end
	sign := s[0] == '-'
	if sign {
		s = s[1:]
	}
	n := leadingDigits(s)
	switch p.takes {
	case whole:
		return n == len(s) && n <= p.digits && (p.sign || !sign)
	case intOrText:
		return n == len(s) && n <= digits[4]
	case quantity:
		return n == len(s) && n <= digits[8]
	case fraction, free:
		if n < len(s) && s[n] == '.' {
			n += 1 + leadingDigits(s[n+1:])
		}
		return n == len(s) && n <= p.digits
	}
	return false
}

func leadingDigits(s []byte) (n int) {
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// isDate reports whether s is certainly a time of RFC 3339. It first tries the usual form, which ends with Z and has a
// day that every month has.
func isDate(s []byte) bool {
	if len(s) == 20 && s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' && s[16] == ':' && s[19] == 'Z' &&
		leadingDigits(s) == 4 && within(s[5:], 1, 12) && within(s[8:], 1, 28) && within(s[11:], 0, 23) &&
		within(s[14:], 0, 59) && within(s[17:], 0, 59) {
		return true
	}
	_, err := time.Parse(time.RFC3339, string(s))
	return err == nil
}

// within reports whether the first two bytes are a number from low to high.
func within(s []byte, low, high int) bool {
	tens, ones := int(s[0])-'0', int(s[1])-'0'
	n := 10*tens + ones
	return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 && n >= low && n <= high
}

// isQuantity reports whether s is a quantity in a common form.
func isQuantity(s []byte) bool {
	n := leadingDigits(s)
	if n == 0 {
		return false
	}
	if n < len(s) && s[n] == '.' {
		n += 1 + leadingDigits(s[n+1:])
	}
	if n > digits[8]-3 {
		return false
	}
	switch string(s[n:]) {
	case "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei":
		return true
	}
	return false
}

// isBase64 reports whether s is padded base64 in the standard alphabet.
func isBase64(s []byte) bool {
	if len(s)%4 != 0 {
		return false
	}
	n := len(s)
	for n > 0 && n > len(s)-2 && s[n-1] == '=' {
		n--
	}
	for _, c := range s[:n] {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/':
		default:
			return false
		}
	}
	return true
}
