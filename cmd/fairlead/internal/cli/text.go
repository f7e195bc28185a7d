package cli

import (
	"encoding/json"
	"io"
	"runtime/debug"
	"strings"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"
)

// OneLine returns the text of an error on one line.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Plain converts text to one line without control characters for the terminal. Callers and receivers control the text
// of operations.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Dash returns s, or "-" if s is empty.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Stamp returns a time in the time zone of this machine.
func Stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// ShellQuote quotes s as one shell word.
func ShellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:+@%,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Encode writes a value as YAML if output is "yaml", otherwise as indented JSON.
func Encode(w io.Writer, output string, v any) error {
	if output == "yaml" {
		raw, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Version returns the version of the program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
