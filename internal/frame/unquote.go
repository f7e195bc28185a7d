package frame

import (
	"unicode/utf16"
	"unicode/utf8"
)

// AppendUnquoted appends the text of a JSON string to dst. s is the well-formed string without its quotes. It resolves
// escapes and replaces invalid UTF-8 like encoding/json.
func AppendUnquoted(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\':
			var r rune
			r, i = unescape(s, i)
			dst = utf8.AppendRune(dst, r)
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, size := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
		}
	}
	return dst
}

func unescape(s []byte, i int) (rune, int) {
	switch s[i+1] {
	case 'b':
		return '\b', i + 2
	case 'f':
		return '\f', i + 2
	case 'n':
		return '\n', i + 2
	case 'r':
		return '\r', i + 2
	case 't':
		return '\t', i + 2
	case 'u':
		r := hex4(s[i+2:])
		i += 6
		if !utf16.IsSurrogate(r) {
			return r, i
		}
		if len(s)-i >= 6 && s[i] == '\\' && s[i+1] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(s[i+2:])); pair != utf8.RuneError {
				return pair, i + 6
			}
		}
		return utf8.RuneError, i
	}
	return rune(s[i+1]), i + 2
}

func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}
