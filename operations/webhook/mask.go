package webhook

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
)

// masked stands where a secret was.
const masked = "[masked]"

// minSecret is the length below which a value is not searched for: it would be found everywhere.
const minSecret = 3

// mask replaces secrets in texts, in the spellings in which a receiver is likely to echo them. The nil mask replaces
// nothing.
type mask struct{ spellings []string }

// newMask makes a mask for the given values; empty ones are ignored.
func newMask(secrets ...string) *mask {
	set := map[string]bool{}
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		for _, spelling := range spell(secret) {
			if len(spelling) >= minSecret {
				set[spelling] = true
			}
		}
	}
	m := &mask{}
	for spelling := range set {
		m.spellings = append(m.spellings, spelling)
	}
	slices.SortFunc(m.spellings, func(a, b string) int { // the longest first: one may be part of another
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return m
}

func spell(secret string) []string {
	out := []string{secret}
	for _, escape := range []func(string) string{url.QueryEscape, url.PathEscape} {
		escaped := escape(secret)
		out = append(out, escaped, lowerEscapes(escaped))
	}
	for _, htmlSafe := range []bool{false, true} {
		var quoted string
		if htmlSafe {
			data, _ := json.Marshal(secret) // strings always can be
			quoted = string(data)
		} else {
			quoted, _ = jsonText(secret)
		}
		out = append(out, strings.Trim(quoted, `"`))
	}
	out = append(out, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))))
	// Within a longer text, base64 of the secret depends on where it begins; all but the edges is the same.
	for shift, skip := range []int{0, 2, 3} {
		padded := append(make([]byte, shift), secret...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded := enc.EncodeToString(padded)
			if end := len(padded) * 8 / 6; end-skip >= 6 {
				out = append(out, encoded[skip:end])
			}
			if shift == 0 {
				out = append(out, encoded)
			}
		}
	}
	return out
}

// lowerEscapes spells %2F as %2f.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(s[i+1:i+3]))
		}
	}
	return string(b)
}

// Mask returns text with secrets replaced, in the spellings in which a receiver is likely to echo them. Values of less
// than three bytes are not searched for.
func Mask(text string, secrets ...string) string { return newMask(secrets...).apply(text) }

// apply looks for each spelling in what the ones before have left only: what stands for a secret is not searched, or
// secrets that are parts of it would make a text grow with each of them.
func (m *mask) apply(text string) string {
	if m == nil || text == "" {
		return text
	}
	pieces := []string{text}
	for _, spelling := range m.spellings {
		if slices.ContainsFunc(pieces, func(piece string) bool { return strings.Contains(piece, spelling) }) {
			var rest []string
			for _, piece := range pieces {
				rest = append(rest, strings.Split(piece, spelling)...)
			}
			pieces = rest
		}
	}
	return strings.Join(pieces, masked)
}

// applyError hides an error that holds a secret behind one that does not. What matched it still does.
func (m *mask) applyError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); m.apply(text) != text {
		return &maskedError{text: m.apply(text), err: err}
	}
	return err
}

// maskedError has no Unwrap on purpose.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string        { return e.text }
func (e *maskedError) Is(target error) bool { return errors.Is(e.err, target) }
