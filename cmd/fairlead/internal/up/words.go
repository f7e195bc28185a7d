package up

import (
	"errors"
	"strings"
)

// splitWords splits a command line like a shell without expansion: at white space, except in '…', in "…" where \
// escapes \ and ", or after \.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote byte                   // the open quote; 0: none
	begun, kept := false, false      // a word has begun; the next character is literal
	for _, c := range []byte(line) { // all special characters are ASCII
		switch {
		case kept:
			if quote == '"' && c != '"' && c != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(c)
			kept = false
		case c == '\\' && quote != '\'':
			begun, kept = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			begun, quote = true, c
		case quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("unclosed quote: " + string(quote))
	case kept:
		return nil, errors.New("nothing follows the last \\")
	case begun:
		words = append(words, word.String())
	}
	return words, nil
}
