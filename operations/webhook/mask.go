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

// masked replaces a secret.
const masked = "[masked]"

// minSecret is the minimum length of a value to search for. A shorter one would match everywhere.
const minSecret = 3

// mask replaces secrets in texts, in the spellings that a receiver is likely to echo. The nil mask replaces nothing.
type mask struct{ spellings []string }

// newMask returns a mask for the given values. Values shorter than minSecret are ignored.
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
	slices.SortFunc(m.spellings, func(a, b string) int { // longest first: one may contain another
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
			data, _ := json.Marshal(secret) // a string always encodes
			quoted = string(data)
		} else {
			quoted, _ = jsonText(secret)
		}
		out = append(out, strings.Trim(quoted, `"`))
	}
	out = append(out, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))))
	// Within a longer text, base64 of the secret depends on its offset modulo 3; all but the edges is the same.
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

// Mask returns text with secrets replaced, in the spellings that a receiver is likely to echo. Values shorter than
// three bytes are ignored.
func Mask(text string, secrets ...string) string { return newMask(secrets...).apply(text) }

// apply searches for each spelling only in the text that remains. Searching the replacements too would let a text grow
// with each secret that is a part of the replacement.
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

// applyError replaces an error that contains a secret by one that does not. errors.Is still matches the same targets.
func (m *mask) applyError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); m.apply(text) != text {
		return &maskedError{text: m.apply(text), err: err}
	}
	return err
}

// maskedError has no Unwrap, because the wrapped error contains a secret.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string        { return e.text }
func (e *maskedError) Is(target error) bool { return errors.Is(e.err, target) }
