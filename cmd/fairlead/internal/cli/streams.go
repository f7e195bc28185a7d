package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are the input and output of a command. Its constructor gets nothing else of the process.
type Streams struct {
	In  io.Reader
	Out io.Writer // results, for scripts too
	Err io.Writer // progress and errors, for people
}

// Say writes a line. It ignores errors, because there is no other way to report them.
func Say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// Terminal returns the size of a terminal, or false if the stream is none.
func Terminal(w any) (width, height int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return width, height, err == nil && width > 0 && height > 0
}

// Cut shortens a line to the width of a terminal.
func Cut(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:max(0, width-1)]) + "…"
	}
	return line
}
