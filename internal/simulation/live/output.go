package live

import (
	"slices"
	"strings"
	"sync"
)

const (
	kept  = 64 << 10 // bytes of the output that are kept
	lines = 15       // of them are shown
)

// output keeps the last part of the output of a process. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	b   []byte
	cut bool // b is not the beginning
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if len(p) > kept {
		p, o.cut = p[len(p)-kept:], true
	}
	o.b = append(o.b, p...)
	if len(o.b) > 2*kept {
		o.b, o.cut = append(o.b[:0], o.b[len(o.b)-kept:]...), true
	}
	return n, nil
}

// String returns a text with the first line, which names a wrong flag before the list of all flags, and the last ones.
// It is empty without output. If a Go program has crashed, the lines begin with the reason, since a stack follows it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.b))
	if text == "" {
		return ""
	}
	all := strings.Split(text, "\n")
	from := max(0, len(all)-lines)
	isStack := strings.HasPrefix(all[len(all)-1], "\t")
	for i := from - 1; i >= 0 && isStack; i-- {
		if strings.HasPrefix(all[i], "panic: ") || strings.HasPrefix(all[i], "fatal error: ") {
			from = i
			break
		}
	}
	shown := all[from:]
	if len(shown) > lines {
		shown = append(slices.Clip(shown[:lines]), "…")
	}
	text = "its output ends with:\n  " + strings.Join(shown, "\n  ")
	if from > 0 && !isStack && !o.cut {
		text = "its output begins with:\n  " + all[0] + "\n" + text
	}
	return "\n" + text
}
