package call

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// maxWarnings bounds the memory of warnings. Further ones are not logged.
const maxWarnings = 256

// warnings logs each warning of the server once. It is safe for concurrent use.
type warnings struct {
	to *slog.Logger

	mu   sync.Mutex // not held while a warning is logged
	seen map[string]struct{}
}

// log logs the warnings of a response.
func (w *warnings) log(ctx context.Context, resp *http.Response) {
	headers := resp.Header.Values("Warning")
	if len(headers) == 0 {
		return
	}
	parsed, _ := utilnet.ParseWarningHeaders(headers)
	for _, one := range parsed {
		if one.Code == 299 && w.first(one.Text) {
			w.to.WarnContext(ctx, "the API server warns", "warning", one.Text)
		}
	}
}

// first records a text. It returns false if the text is known, or if there is no room for it.
func (w *warnings) first(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[text]; ok || len(w.seen) >= maxWarnings {
		return false
	}
	if w.seen == nil {
		w.seen = make(map[string]struct{})
	}
	w.seen[text] = struct{}{}
	return true
}
